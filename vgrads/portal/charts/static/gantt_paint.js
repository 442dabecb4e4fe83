// How the Gantt chart is drawn: one canvas, so that thousands of bars move. Tasks are coloured by workflow, their
// state along the lower edge; queue waits are intervals (5-95 %).
"use strict";
(() => {
  const {STATES, TOP, FOOT, duration, readable} = window.vgrads, clamp = (x, low, high) => Math.min(Math.max(x, low), high);

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
    }

    ticks() {
      const nice = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
      const span = this.view[1] - this.view[0];
      return nice.find(n => span / n <= this.inner() / 80) || Math.ceil(span / 8 / 86400) * 86400;
    }

    paintGrid(g, width) {
      g.fillStyle = "#8882";
      for (const [t0, t1, u0, u1] of this.pieces) if (u1 - u0 < (t1 - t0) * 0.9) {
        const a = this.x(t0), b = this.x(t1);
        if (b > this.left && a < width) g.fillRect(Math.max(a, this.left), TOP - 6, b - Math.max(a, this.left), this.content);
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
        g.moveTo(x, TOP - 6);
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
      const copies = new Map();
      this.parts.forEach((part, index) => {
        for (const lane of part.lanes) {
          const place = this.tops.get(lane.slot.id), top = place.top + index * (place.one + 3);
          if (top + place.one < this.scroll || top > this.scroll + this.height) continue;
          const a = this.x(lane.start), b = this.x(lane.end);
          g.fillStyle = "#8884";
          g.fillRect(a, top, Math.max(0, b - a), place.one);
          this.hits.push({x: this.left, y: top, w: width, h: place.one + 6, lane});
          if (index === this.parts.length - 1) this.paintWait(g, lane.slot, top + place.one + 5);
        }
        g.globalAlpha = this.parts.length > 1 && !part.real ? 0.45 : 1;
        for (const bar of part.bars) this.paintBar(g, bar, index, width, copies);
        g.globalAlpha = 1;
      });
      this.paintCopies(g, copies);
      g.restore();
      g.textAlign = "right";
      for (const slot of this.data.slots) {
        const {top, height} = this.tops.get(slot.id);
        if (top + height < this.scroll || top > this.scroll + this.height) continue;
        g.fillStyle = this.ink;
        g.fillText(this.cut(g, slot.id), this.left - 10, top + 12);
        g.fillStyle = this.soft;
        const price = slot.cost_usd ? ` · $${slot.cost_usd.toFixed(2)}` : "";
        if (height > 24) g.fillText(this.cut(g, `${slot.procs}p · ${Math.round(100 * slot.probability)}%${price}`), this.left - 10, top + 26);
      }
      g.textAlign = "left";
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

    paintBar(g, bar, index, width, copies) {
      const item = bar.item, place = this.tops.get(item.slot);
      const per = place.one / Math.max(1, this.slot(item.slot).procs);
      const h = Math.max(2, item.procs * per), y = place.top + index * (place.one + 3) + place.one - bar.row * per - h;
      const x = this.x(bar.start), w = Math.max(1.5, this.x(bar.end) - x);
      const key = item.workflow + "/" + item.task;
      if (index === this.parts.length - 1) {
        if (!copies.has(key)) copies.set(key, []);
        copies.get(key).push([x + w / 2, y + h / 2]);
      }
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
      if (h >= 15 && w > 30 && w > g.measureText(label).width + 10) {
        g.fillStyle = readable(this.colour.get(item.workflow));
        g.fillText(label, x + 5, y + h / 2 + 3);
      }
      g.globalAlpha = alpha;
      this.hits.push({x, y, w, h, bar});
    }

    // The copies of the task that is looked at, joined.
    paintCopies(g, copies) {
      const bar = this.focused(), points = copies.get(this.joined || (bar && bar.item.workflow + "/" + bar.item.task)) || [];
      if (points.length < 2) return;
      g.strokeStyle = this.ink;
      g.lineWidth = 1.5;
      g.setLineDash([3, 3]);
      g.beginPath();
      points.forEach(([x, y], i) => i ? g.lineTo(x, y) : g.moveTo(x, y));
      g.stroke();
      g.setLineDash([]);
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
        g.moveTo(x, TOP - 8);
        g.lineTo(x, this.height - FOOT);
        g.stroke();
        g.setLineDash([]);
        g.fillText(text, clamp(x - wide / 2, this.left, Math.max(this.left, width - wide - 4)), y);
      };
      const now = this.data.now_s, goes = this.data.state === "running" || this.data.state === "interrupted";
      const at = this.view[1] >= this.total ? this.end : this.until(this.view[1]);
      line(deadline, this.bad, `deadline ${duration(deadline)}` + (beyond ? `, ${duration(deadline - at)} beyond →` : ""), beyond ? [2, 4] : [], 34);
      if (goes && now != null) line(now, this.good, "now", [4, 3], Math.abs(this.x(now) - this.x(deadline)) < 120 ? 24 : 34);
    }

    paintHead(g, width) {
      g.fillStyle = this.page;
      g.fillRect(0, 0, width, TOP - 8);
      g.fillStyle = this.soft;
      g.textAlign = "center";
      for (const [x, t] of this.labels) if (x < width - 20) g.fillText(t ? duration(t) : "0", x, 14);
      g.textAlign = "left";
    }
  }

  window.vgrads.Painting = Painting;
})();
