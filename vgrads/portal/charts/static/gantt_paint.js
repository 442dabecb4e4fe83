// How the Gantt chart is drawn: one canvas, so that thousands of bars move. Tasks are coloured by workflow, their
// state along the lower edge; queue waits are intervals (5-95 %).
"use strict";
(() => {
  const {STATES, FOOT, duration, readable, percent, shorten} = window.vgrads;
  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

  class Painting {
    paint() {
      const c = this.canvas, ratio = window.devicePixelRatio || 1;
      this.height = Math.min(this.content, this.most());
      c.style.height = this.scroller.style.maxHeight = this.height + "px";
      this.spacer.style.height = this.content - this.height + "px";
      const width = c.clientWidth;
      this.left = clamp(0.3 * width, 96, 180);
      if (c.width !== Math.round(width * ratio) || c.height !== Math.round(this.height * ratio)) {
        c.width = Math.round(width * ratio);
        c.height = Math.round(this.height * ratio);
      }
      const g = c.getContext("2d"), style = getComputedStyle(c);
      this.ink = style.getPropertyValue("--ink") || "#1c2430";
      this.soft = style.getPropertyValue("--soft") || "#6a7380";
      this.good = style.getPropertyValue("--good") || "#1d7a36";
      this.bad = style.getPropertyValue("--bad") || "#b3261e";
      this.page = style.getPropertyValue("--page") || "#fff";
      g.setTransform(ratio, 0, 0, ratio, 0, 0);
      g.clearRect(0, 0, width, this.height);
      g.font = "12px system-ui, sans-serif";
      this.hits = [];
      g.save();
      g.translate(0, -this.scroll);
      this.paintGrid(g, width);
      this.paintLanes(g, width);
      g.restore();
      this.paintHead(g, width);
      this.paintMarks(g, width);
      this.countBelow();
    }

    ticks() {
      const nice = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800,
        604800];
      const span = this.view[1] - this.view[0];
      return nice.find(n => span / n <= this.inner() / 80) || Math.ceil(span / 8 / 86400) * 86400;
    }

    paintGrid(g, width) {
      g.fillStyle = "#8882";
      for (const [t0, t1, u0, u1] of this.pieces) if (u1 - u0 < (t1 - t0) * 0.9) {
        const a = this.x(t0), b = this.x(t1);
        if (b > this.left && a < width) g.fillRect(Math.max(a, this.left), this.top - 6, b - Math.max(a, this.left),
          this.content);
      }
      const step = this.ticks();
      g.strokeStyle = "#9993";
      g.beginPath();
      this.labels = [];
      let last = -1e9;
      for (let t = 0; t <= this.end; t += step) {
        const x = this.x(t);
        if (x < this.left - 1 || x > width || x - last < 40) continue;
        last = x;
        g.moveTo(x, this.top - 6);
        g.lineTo(x, this.content - FOOT);
        this.labels.push([x, t]);
      }
      g.stroke();
    }

    paintLanes(g, width) {
      g.save();
      g.beginPath();
      g.rect(this.left, 0, width - this.left, this.content);
      g.clip();
      this.parts.forEach((part, index) => {
        for (const lane of part.lanes) {
          const place = this.tops.get(lane.slot.id), top = place.top + index * (place.one + 3);
          if (top + place.one < this.scroll || top > this.scroll + this.height) continue;
          const a = this.x(lane.start), b = this.x(lane.end);
          g.fillStyle = "#8884";
          g.fillRect(a, top, Math.max(0, b - a), place.one);
          this.hits.push({x: this.left, y: top, w: width, h: place.one + 6, lane});
          if (index === this.parts.length - 1) this.paintWait(g, lane.slot, top + place.one + 5);
          g.globalAlpha = this.parts.length > 1 && !part.real ? 0.45 : 1;
          for (const bar of part.bySlot.get(lane.slot.id) || []) this.paintBar(g, bar, index, width);
          g.globalAlpha = 1;
          if (part.real && lane.slot.state === "failed") this.paintLost(g, lane, top + place.one / 2);
        }
      });
      this.paintCopies(g);
      g.restore();
      g.textAlign = "right";
      const names = this.shortNames(g);
      for (const slot of this.data.slots) {
        const {top, height} = this.tops.get(slot.id);
        if (top + height < this.scroll || top > this.scroll + this.height) continue;
        g.fillStyle = this.ink;
        g.fillText(this.cut(g, names.get(slot.id)), this.left - 10, top + 12);
        g.fillStyle = this.soft;
        const price = slot.cost_usd ? ` · $${slot.cost_usd.toFixed(2)}` : "";
        const chance = `${slot.procs}p · ${percent(slot.probability)}`, all = chance + price;
        const words = g.measureText(all).width <= this.left - 14 ? all : this.cut(g, chance);
        if (height > 24) g.fillText(words, this.left - 10, top + 26);
      }
      g.textAlign = "left";
    }

    // Names of lanes, made again only where the chart or its room changes.
    shortNames(g) {
      if (this.namesOf !== this.data || this.namesLeft !== this.left) {
        [this.namesOf, this.namesLeft] = [this.data, this.left];
        const fits = text => g.measureText(text).width <= this.left - 14;
        this.names = shorten(this.data.slots.map(s => s.id), fits);
      }
      return this.names;
    }

    // A label that is as long as there is room for, its beginning and its end kept.
    cut(g, text) {
      const room = this.left - 14;
      if (g.measureText(text).width <= room) return text;
      let kept = text.length - 1;
      const short = () => text.slice(0, Math.ceil(kept / 2)) + "…" + text.slice(text.length - Math.floor(kept / 2));
      while (kept > 2 && g.measureText(short()).width > room) kept--;
      return short();
    }

    // From the request to the start: a line over 5-95 %, a tick at the median.
    paintWait(g, slot, y) {
      if (slot.ready_p5_s == null) return;
      const a = this.x(slot.ready_p5_s), b = this.x(slot.ready_p95_s ?? this.end);
      g.fillStyle = "#b06a00";
      g.fillRect(a, y, Math.max(1, b - a), 1.5);
      if (slot.ready_p50_s != null) g.fillRect(this.x(slot.ready_p50_s) - 1, y - 3, 2, 7);
    }

    // A slot that was lost: a cross where it ended, or would have begun.
    paintLost(g, lane, y) {
      const x = clamp(this.x(lane.slot.actual?.ended_s ?? lane.slot.start_s), this.left + 8,
        this.canvas.clientWidth - 20);
      for (const [colour, wide] of [[this.page, 6], [this.bad, 2.5]]) {
        g.strokeStyle = colour;
        g.lineWidth = wide;
        g.beginPath();
        for (const way of [-1, 1]) { g.moveTo(x - 7, y - 7 * way); g.lineTo(x + 7, y + 7 * way); }
        g.stroke();
      }
    }

    // Where a bar of a part is on the canvas.
    box(bar, index) {
      const item = bar.item, place = this.tops.get(item.slot);
      const per = place.one / Math.max(1, this.slot(item.slot).procs);
      const h = Math.max(2, item.procs * per),
        y = place.top + index * (place.one + 3) + place.one - bar.row * per - h;
      const x = this.x(bar.start);
      return [x, y, Math.max(1.5, this.x(bar.end) - x), h];
    }

    paintBar(g, bar, index, width) {
      const item = bar.item, [x, y, w, h] = this.box(bar, index);
      if (x + w < this.left || x > width || y + h < this.scroll || y > this.scroll + this.height) return;
      const dim = this.only && this.only !== item.workflow;
      const alpha = g.globalAlpha;
      if (dim) g.globalAlpha = 0.12;
      g.fillStyle = this.colour.get(item.workflow);
      g.fillRect(x, y, w, h);
      const band = Math.min(4, h / 3);
      g.fillStyle = STATES[item.state] || "#8a8f98";
      g.fillRect(x, y + h - band, w, band);
      if (w > 3) {
        g.strokeStyle = item.copy ? this.ink : this.page;
        g.setLineDash(item.copy ? [3, 2] : []);
        g.lineWidth = item.copy ? 1 : 0.5;
        g.strokeRect(x + 0.25, y + 0.25, w - 0.5, h - 0.5);
        g.setLineDash([]);
      }
      if (bar === this.focused()) {
        g.strokeStyle = this.ink;
        g.lineWidth = 2.5;
        g.strokeRect(x - 2, y - 2, w + 4, h + 4);
      }
      const label = `${item.workflow} ${item.task}`;
      if (h >= 15 && w > 30 && w > this.wide(g, label) + 10) {
        g.fillStyle = alpha < 1 ? this.ink : readable(this.colour.get(item.workflow));
        if (!dim) g.globalAlpha = 1;
        g.fillText(label, x + 5, y + h / 2 + 3);
      }
      g.globalAlpha = alpha;
      this.hits.push({x, y, w, h, bar});
    }

    wide(g, text) {
      this.widths ??= new Map();
      if (!this.widths.has(text)) this.widths.set(text, g.measureText(text).width);
      return this.widths.get(text);
    }

    // The replicas of the task that is looked at, joined.
    paintCopies(g) {
      const bar = this.focused(), key = this.joined || (bar && bar.item.workflow + "/" + bar.item.task);
      if (!key) return;
      const index = this.parts.length - 1;
      const same = this.parts[index].bars.filter(b => b.item.workflow + "/" + b.item.task === key);
      const points = same.map(b => this.box(b, index)).map(([x, y, w, h]) => [x + w / 2, y + h / 2]);
      if (points.length < 2) return;
      for (const [colour, thick, dash] of [[this.page, 4, []], [this.ink, 2, [5, 3]]]) {
        g.strokeStyle = colour;
        g.lineWidth = thick;
        g.setLineDash(dash);
        g.beginPath();
        points.forEach(([x, y], i) => i ? g.lineTo(x, y) : g.moveTo(x, y));
        g.stroke();
      }
      g.setLineDash([]);
      g.fillStyle = this.ink;
      for (const [x, y] of points) { g.beginPath(); g.arc(x, y, 4, 0, 7); g.fill(); }
    }

    join(key) { if (key !== this.joined) { this.joined = key; this.draw(); } }

    // The deadline and now; a deadline that is further on stands at the edge, with how far it is.
    paintMarks(g, width) {
      const edge = width - 8, deadline = this.data.deadline_s, beyond = this.x(deadline) > edge;
      const line = (t, colour, text, dash, y) => {
        const x = Math.min(this.x(t), edge), wide = g.measureText(text).width;
        if (x < this.left) return;
        g.strokeStyle = g.fillStyle = colour;
        g.lineWidth = 1.5;
        g.setLineDash(dash);
        g.beginPath();
        g.moveTo(x, this.top - 8);
        g.lineTo(x, this.height - FOOT);
        g.stroke();
        g.setLineDash([]);
        g.fillText(text, clamp(x - wide / 2, this.left, Math.max(this.left, width - wide - 4)), y);
      };
      const now = this.data.now_s, goes = this.data.state === "running" || this.data.state === "interrupted";
      const at = this.view[1] >= this.total ? this.end : this.until(this.view[1]);
      const far = beyond ? `, ${duration(deadline - at)} beyond →` : "";
      line(deadline, this.bad, `deadline ${duration(deadline)}${far}`, beyond ? [2, 4] : [], this.top - 12);
      if (goes && now != null) {
        const isClose = Math.abs(this.x(now) - this.x(deadline)) < 120;
        line(now, this.good, "now", [4, 3], this.top - (isClose ? 22 : 12));
      }
    }

    paintHead(g, width) {
      g.fillStyle = this.page;
      g.fillRect(0, 0, width, this.top - 8);
      g.fillStyle = this.soft;
      g.textAlign = "center";
      for (const [x, t] of this.labels) if (x < width - 20) g.fillText(t ? duration(t) : "0", x, 14);
      if (this.began != null) this.paintClock(g, width);
      g.textAlign = "left";
    }

    // The clock under the durations, in the zone of the reader; the day where it changes.
    paintClock(g, width) {
      const clock = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit",
        ...(this.ticks() < 60 ? {second: "2-digit"} : {})});
      const day = new Intl.DateTimeFormat(undefined, {weekday: "short", day: "numeric"});
      const dayOf = t => day.format(new Date(this.began + 1000 * t));
      const first = this.labels.length ? dayOf(this.labels[0][1]) : "";
      let last = first, free = -1e9;
      for (const [at, t] of this.labels) {
        const time = clock.format(new Date(this.began + 1000 * t));
        const text = dayOf(t) === last ? time : `${dayOf(t)} ${time}`;
        const half = this.wide(g, text) / 2, x = Math.max(at, this.left + half - 4);
        if (x + half >= width || x - half < free) continue;
        g.fillText(text, x, 29);
        free = x + half + 8;
        last = dayOf(t);
      }
      g.textAlign = "right";
      g.fillText("since start", this.left - 10, 14);
      g.fillText(first, this.left - 10, 29);
    }

    // How many lanes are below what is visible.
    countBelow() {
      const edge = this.scroll + this.height - 4;
      const middle = slot => { const p = this.tops.get(slot.id); return p.top + p.height / 2; };
      const below = this.data.slots.filter(s => middle(s) > edge).length;
      this.below.hidden = !below;
      this.below.textContent = `${below} more ${below === 1 ? "lane" : "lanes"} below ↓`;
    }
  }

  window.vgrads.Painting = Painting;
})();
