// The Gantt chart: a lane per slot, as high as its processors; tasks coloured by workflow, their state along
// the lower edge; queue waits as intervals (5-95 %); plan and reality; one canvas, so that thousands of bars move.
"use strict";
(() => {
  const TOP = 30, GAP = 16, LEFT = 170, FOLD = 26;
  const STATES = {planned: "#8a8f98", waiting: "#8a8f98", running: "#2e9e44", done: "#5b6068", failed: "#d22f2f",
    cancelled: "#c58a00", skipped: "#b9bec7"};
  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

  function duration(s) {
    const sign = s < 0 ? "-" : "";
    s = Math.abs(Math.round(s));
    const parts = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]].map(([unit, name]) => {
      const n = Math.floor(s / unit);
      s -= n * unit;
      return n ? n + name : "";
    }).filter(Boolean);
    return sign + (parts.slice(0, 2).join(" ") || "0s");
  }

  function colours(names) {
    const found = new Map();
    names.forEach((name, i) => {
      const hue = ((i * 0.61803398875 + 0.58) % 1) * 360;
      found.set(name, `hsl(${hue.toFixed(1)} 55% ${i % 2 ? 60 : 52}%)`);
    });
    return found;
  }

  // Every bar gets processors of its slot that are free for its whole time, the lowest first.
  function stack(data, spans) {
    const free = new Map(data.slots.map(s => [s.id, new Float64Array(s.procs).fill(-Infinity)]));
    return spans.sort((a, b) => a.start - b.start || a.end - b.end).map(span => {
      const column = free.get(span.item.slot), procs = span.item.procs;
      let run = 0, row = 0;
      for (let i = 0; i < column.length; i++) {
        run = column[i] <= span.start + 1e-6 ? run + 1 : 0;
        if (run === procs) { row = i - procs + 1; break; }
      }
      column.fill(span.end, row, row + procs);
      return {...span, row};
    });
  }

  const planned = data => stack(data, data.placements.map(item => ({item, start: item.start_s, end: item.end_s})));
  const actual = data => stack(data, data.placements.filter(p => p.actual).map(item => ({
    item, start: item.actual.start_s, end: item.actual.end_s ?? Math.max(data.now_s ?? 0, item.actual.start_s)})));

  function lanes(data, real) {
    return data.slots.map(slot => {
      if (!real) return {slot, start: slot.start_s, end: slot.end_s};
      const seen = slot.actual || {};
      if (seen.ready_s == null) return {slot, start: 0, end: 0};
      return {slot, start: seen.ready_s, end: seen.ended_s ?? Math.max(data.now_s ?? 0, seen.ready_s)};
    });
  }

  class Gantt {
    constructor(host, data, options = {}) {
      this.host = host;
      this.options = options;
      this.view = [0, 1];
      this.scroll = 0;
      this.folded = false;
      this.only = null;
      this.focus = -1;
      this.build();
      this.update(data);
      this.fit();
      new ResizeObserver(() => this.draw()).observe(this.canvas);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    }

    build() {
      const make = (tag, className, text) => {
        const element = document.createElement(tag);
        element.className = className;
        if (text) element.textContent = text;
        return element;
      };
      this.bar = make("div", "gantt-bar");
      this.bar.setAttribute("role", "toolbar");
      this.bar.setAttribute("aria-label", "Chart");
      const button = (label, title, act) => {
        const one = make("button", "gantt-button", label);
        one.type = "button";
        one.title = title;
        one.addEventListener("click", act);
        this.bar.append(one);
        return one;
      };
      this.modes = new Map(["plan", "actual", "both"].map(mode => [mode, button(
        {plan: "Plan", actual: "Reality", both: "Both"}[mode], "What to draw", () => this.show(mode))]));
      button("+", "Zoom in", () => this.zoom(1 / 1.5));
      button("−", "Zoom out", () => this.zoom(1.5));
      button("Fit", "Show everything", () => { this.fit(); this.draw(); });
      this.fold = button("Fold idle time", "Draw stretches without any slot short", () => this.setFolded(!this.folded));
      button("PNG", "Save as a picture", () => this.save());
      this.canvas = make("canvas", "gantt-canvas");
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute("role", "application");
      this.canvas.setAttribute("aria-roledescription", "Gantt chart");
      this.tip = make("div", "gantt-tip");
      this.tip.hidden = true;
      this.detail = make("div", "gantt-detail");
      this.detail.setAttribute("role", "status");
      this.host.append(this.bar, this.canvas, this.tip, this.detail);
      this.listen();
    }

    listen() {
      const c = this.canvas;
      let from = null, moved = false;
      c.addEventListener("wheel", e => {
        if (!e.ctrlKey && !e.metaKey && document.activeElement !== c && !this.options.greedy) return;
        e.preventDefault();
        if (e.shiftKey) this.pan((e.deltaY || e.deltaX) / 600);
        else this.zoom(e.deltaY > 0 ? 1.2 : 1 / 1.2, e.offsetX);
      }, {passive: false});
      c.addEventListener("pointerdown", e => {
        from = {x: e.offsetX, y: e.offsetY, view: [...this.view], scroll: this.scroll};
        moved = false;
        c.setPointerCapture(e.pointerId);
      });
      c.addEventListener("pointermove", e => {
        if (!from) { this.hover(e.offsetX, e.offsetY); return; }
        if (Math.abs(e.offsetX - from.x) + Math.abs(e.offsetY - from.y) > 4) moved = true;
        if (!moved) return;
        const by = (from.x - e.offsetX) / this.inner() * (from.view[1] - from.view[0]);
        this.setView(from.view[0] + by, from.view[1] + by);
        this.scroll = from.scroll + from.y - e.offsetY;
        this.draw();
      });
      c.addEventListener("pointerup", e => {
        if (from && !moved) this.explain(this.at(e.offsetX, e.offsetY));
        from = null;
      });
      c.addEventListener("pointerleave", () => { this.tip.hidden = true; });
      c.addEventListener("dblclick", () => { this.fit(); this.draw(); });
      c.addEventListener("keydown", e => this.key(e));
    }

    key(e) {
      const acts = {
        ArrowLeft: () => this.pan(-0.1), ArrowRight: () => this.pan(0.1),
        ArrowUp: () => { this.scroll -= 40; }, ArrowDown: () => { this.scroll += 40; },
        "+": () => this.zoom(1 / 1.3), "-": () => this.zoom(1.3), "0": () => this.fit(),
        n: () => this.step(1), p: () => this.step(-1), Enter: () => this.explain(this.focused()),
        Escape: () => { this.focus = -1; this.tip.hidden = true; this.detail.textContent = ""; },
      };
      if (!acts[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
      e.preventDefault();
      acts[e.key]();
      this.draw();
    }

    step(by) {
      const all = this.parts[this.parts.length - 1].bars;
      if (!all.length) return;
      this.focus = (this.focus + by + all.length) % all.length;
      const bar = all[this.focus], at = this.u((bar.start + bar.end) / 2);
      const width = this.view[1] - this.view[0];
      if (at < this.view[0] || at > this.view[1]) this.setView(at - width / 2, at + width / 2);
      this.scroll = clamp(this.tops.get(bar.item.slot).top - this.height / 2, 0, 1e9);
      this.canvas.setAttribute("aria-label", this.told(bar).replaceAll("\n", ", "));
    }

    focused() { return this.parts[this.parts.length - 1].bars[this.focus]; }

    update(data) {
      const first = !this.data;
      this.data = data;
      this.colour = colours(data.workflows);
      const ran = data.now_s != null;
      this.modes.get("actual").disabled = this.modes.get("both").disabled = !ran;
      this.bar.hidden = false;
      if (first || (ran && this.mode === "plan" && !this.chosen)) this.mode = ran ? "actual" : "plan";
      this.arrange();
      if (!first) this.draw();
    }

    show(mode) { this.mode = mode; this.chosen = true; this.arrange(); this.draw(); }
    setFolded(folded) { this.folded = folded; this.arrange(); this.fit(); this.draw(); }

    arrange() {
      const data = this.data, parts = [];
      if (this.mode !== "actual") parts.push({real: false, bars: planned(data), lanes: lanes(data, false)});
      if (this.mode !== "plan") parts.push({real: true, bars: actual(data), lanes: lanes(data, true)});
      this.parts = parts;
      const ends = parts.flatMap(p => [...p.lanes.map(l => l.end), ...p.bars.map(b => b.end)]);
      this.end = Math.max(data.deadline_s, data.now_s ?? 0, ...ends, 1) * 1.02;
      this.makeScale();
      const widest = Math.max(1, ...data.slots.map(s => s.procs));
      this.per = clamp(74 / widest, 1, 26);
      this.tops = new Map();
      let y = TOP;
      for (const slot of data.slots) {
        const one = Math.max(18, slot.procs * this.per);
        this.tops.set(slot.id, {top: y, one, height: one * parts.length + (parts.length - 1) * 3});
        y += one * parts.length + GAP;
      }
      this.content = y + 20;
      for (const [mode, b] of this.modes) b.setAttribute("aria-pressed", String(mode === this.mode));
      this.fold.setAttribute("aria-pressed", String(this.folded));
      this.canvas.setAttribute("aria-label", `Gantt chart of ${data.name}: ${data.slots.length} slots, ` +
        `${data.placements.length} tasks. Arrows move, plus and minus zoom, n and p go from task to task, Enter explains.`);
    }

    // Seconds to a scale in which long stretches without slots may be short: pieces [t0, t1, u0, u1].
    makeScale() {
      const pieces = [];
      const busy = this.parts.flatMap(p => p.lanes.filter(l => l.end > l.start).map(l => [l.start, l.end]));
      busy.push([this.data.deadline_s, this.data.deadline_s]);
      busy.sort((a, b) => a[0] - b[0]);
      let t = 0, u = 0;
      const add = (t1, length) => { pieces.push([t, t1, u, u + length]); u += length; t = t1; };
      const idle = this.end / 20;
      if (this.folded) for (const [start, end] of busy) {
        if (start - t > idle) add(start, this.end / 50);
        if (end > t) add(end, end - t);
      }
      if (t < this.end) add(this.end, this.end - t);
      this.pieces = pieces;
      this.total = u;
    }

    u(t) {
      for (const [t0, t1, u0, u1] of this.pieces) if (t <= t1) return u0 + (Math.max(t, t0) - t0) / (t1 - t0) * (u1 - u0);
      return this.total;
    }

    inner() { return Math.max(60, this.canvas.clientWidth - LEFT - 12); }
    x(t) { return LEFT + (this.u(t) - this.view[0]) / (this.view[1] - this.view[0]) * this.inner(); }
    fit() { this.view = [0, this.total]; this.scroll = 0; }

    setView(from, to) {
      const width = clamp(to - from, this.total / 5000, this.total);
      from = clamp(from, 0, this.total - width);
      this.view = [from, from + width];
    }

    pan(share) { const by = share * (this.view[1] - this.view[0]); this.setView(this.view[0] + by, this.view[1] + by); this.draw(); }

    zoom(factor, x) {
      const [a, b] = this.view, share = x == null ? 0.5 : clamp((x - LEFT) / this.inner(), 0, 1);
      const at = a + share * (b - a), width = clamp((b - a) * factor, this.total / 5000, this.total);
      this.setView(at - share * width, at - share * width + width);
      this.draw();
    }

    draw() {
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame(() => { this.waiting = false; this.paint(); });
    }

    paint() {
      const c = this.canvas, ratio = window.devicePixelRatio || 1;
      this.height = Math.min(this.content, this.options.height || 640);
      this.scroll = clamp(this.scroll, 0, Math.max(0, this.content - this.height));
      c.style.height = this.height + "px";
      const width = c.clientWidth;
      if (c.width !== Math.round(width * ratio) || c.height !== Math.round(this.height * ratio)) {
        c.width = Math.round(width * ratio);
        c.height = Math.round(this.height * ratio);
      }
      const g = c.getContext("2d"), style = getComputedStyle(c);
      this.ink = style.getPropertyValue("--ink") || "#1c2430";
      this.soft = style.getPropertyValue("--soft") || "#6a7380";
      this.page = style.getPropertyValue("--page") || "#fff";
      g.setTransform(ratio, 0, 0, ratio, 0, 0);
      g.clearRect(0, 0, width, this.height);
      g.font = "12px system-ui, sans-serif";
      this.hits = [];
      g.save();
      g.translate(0, -this.scroll);
      this.paintGrid(g, width);
      this.paintLanes(g, width);
      this.paintMarks(g);
      g.restore();
      this.paintHead(g, width);
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
        if (b > LEFT && a < width) g.fillRect(Math.max(a, LEFT), TOP - 6, b - Math.max(a, LEFT), this.content);
      }
      const step = this.ticks();
      g.strokeStyle = "#9993";
      g.beginPath();
      this.labels = [];
      let last = -1e9;
      for (let t = 0; t <= this.end; t += step) {
        const x = this.x(t);
        if (x < LEFT - 1 || x > width || x - last < 40) continue;
        last = x;
        g.moveTo(x, TOP - 6);
        g.lineTo(x, this.content - 16);
        this.labels.push([x, t]);
      }
      g.stroke();
    }

    paintLanes(g, width) {
      g.save();
      g.beginPath();
      g.rect(LEFT, 0, width - LEFT, this.content);
      g.clip();
      const copies = new Map();
      this.parts.forEach((part, index) => {
        for (const lane of part.lanes) {
          const place = this.tops.get(lane.slot.id), top = place.top + index * (place.one + 3);
          if (top + place.one < this.scroll || top > this.scroll + this.height) continue;
          const a = this.x(lane.start), b = this.x(lane.end);
          g.fillStyle = "#8884";
          g.fillRect(a, top, Math.max(0, b - a), place.one);
          this.hits.push({x: LEFT, y: top, w: width, h: place.one + 6, lane});
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
        g.fillText(slot.id.length > 26 ? "…" + slot.id.slice(-25) : slot.id, LEFT - 10, top + 12);
        g.fillStyle = this.soft;
        const price = slot.cost_usd ? ` · $${slot.cost_usd.toFixed(2)}` : "";
        if (height > 24) g.fillText(`${slot.procs}p · ${Math.round(100 * slot.probability)}%${price}`, LEFT - 10, top + 26);
      }
      g.textAlign = "left";
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
      if (x + w < LEFT || x > width || y + h < this.scroll || y > this.scroll + this.height) return;
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
      if (h >= 13 && w > 6.3 * label.length) {
        g.fillStyle = "#fff";
        g.fillText(label, x + 5, y + h / 2 + 3);
      }
      g.globalAlpha = alpha;
      this.hits.push({x, y, w, h, bar});
    }

    paintCopies(g, copies) {
      g.strokeStyle = this.soft;
      g.lineWidth = 1;
      g.setLineDash([2, 3]);
      for (const [key, points] of copies) {
        if (points.length < 2 || (this.only && !key.startsWith(this.only + "/"))) continue;
        g.beginPath();
        points.forEach(([x, y], i) => i ? g.lineTo(x, y) : g.moveTo(x, y));
        g.stroke();
      }
      g.setLineDash([]);
    }

    paintMarks(g) {
      const line = (t, colour, text, dash) => {
        const x = this.x(t);
        if (x < LEFT) return;
        g.strokeStyle = colour;
        g.lineWidth = 1.5;
        g.setLineDash(dash);
        g.beginPath();
        g.moveTo(x, TOP - 6);
        g.lineTo(x, this.content - 18);
        g.stroke();
        g.setLineDash([]);
        g.fillStyle = colour;
        g.textAlign = "right";
        g.fillText(text, x - 4, this.content - 6);
        g.textAlign = "left";
      };
      line(this.data.deadline_s, "#d22f2f", "deadline " + duration(this.data.deadline_s), []);
      if (this.data.state === "running" && this.data.now_s != null) line(this.data.now_s, "#2e9e44", "now", [4, 3]);
    }

    paintHead(g, width) {
      g.fillStyle = this.page;
      g.fillRect(LEFT, 0, width - LEFT, TOP - 8);
      g.fillStyle = this.soft;
      g.textAlign = "center";
      for (const [x, t] of this.labels) g.fillText(t ? duration(t) : "0", x, 14);
      g.textAlign = "left";
    }

    slot(id) {
      if (this.slotsOf !== this.data) {
        this.slotsOf = this.data;
        this.byId = new Map(this.data.slots.map(s => [s.id, s]));
      }
      return this.byId.get(id);
    }

    at(x, y) {
      y += this.scroll;
      for (let i = this.hits.length - 1; i >= 0; i--) {
        const h = this.hits[i];
        if (h.bar && x >= h.x && x <= h.x + h.w && y >= h.y && y <= h.y + h.h) return h.bar;
      }
      return this.hits.find(h => h.lane && y >= h.y && y <= h.y + h.h)?.lane;
    }

    told(thing) {
      if (thing.slot) {
        const s = thing.slot, seen = s.actual || {};
        return [`${s.id} (${s.kind}, ${s.procs} processors)`, `asked for at ${duration(s.submit_s)}, needed from ${duration(s.start_s)}`,
          s.ready_p5_s == null ? "" : `ready ${duration(s.ready_p5_s)} to ${s.ready_p95_s == null ? "perhaps never" : duration(s.ready_p95_s)} (5–95 %)`,
          seen.ready_s != null ? `was ready at ${duration(seen.ready_s)}` : "",
          `probability ${(100 * s.probability).toFixed(1)} %` + (s.cost_usd ? `, $${s.cost_usd.toFixed(2)}` : ""),
          `state ${s.state}${seen.reason ? ": " + seen.reason : ""}`].filter(Boolean).join("\n");
      }
      const p = thing.item;
      return [`${p.workflow} · ${p.task}${p.copy ? ` (copy ${p.copy})` : ""}`, `${duration(thing.start)} to ${duration(thing.end)}, ${p.procs} processors`,
        `planned ${duration(p.start_s)} to ${duration(p.end_s)} in ${p.slot}`, `probability ${(100 * p.probability).toFixed(1)} %`,
        `state ${p.state}${p.reason ? ": " + p.reason : ""}`].join("\n");
    }

    hover(x, y) {
      const thing = this.at(x, y);
      this.tip.hidden = !thing;
      this.canvas.style.cursor = thing && thing.item ? "pointer" : "grab";
      if (!thing) return;
      this.tip.textContent = this.told(thing);
      const right = x > this.canvas.clientWidth * 0.65;
      this.tip.style.left = right ? "" : x + 14 + "px";
      this.tip.style.right = right ? this.canvas.clientWidth - x + 14 + "px" : "";
      this.tip.style.top = this.canvas.offsetTop + y + 16 + "px";
    }

    async explain(thing) {
      if (!thing) { this.detail.textContent = ""; return; }
      let text = this.told(thing);
      if (thing.item && this.options.why) {
        this.detail.textContent = text;
        const why = await this.options.why(thing.item);
        if (why) text += "\n\nWhy there?\n" + why;
      }
      this.detail.textContent = text;
    }

    pick(workflow) { this.only = this.only === workflow ? null : workflow; this.draw(); return this.only; }

    save() {
      const link = document.createElement("a");
      link.download = (this.data.name || "gantt").replaceAll(/[^\w.-]+/g, "_") + ".png";
      link.href = this.canvas.toDataURL("image/png");
      link.click();
    }
  }

  // The key of workflows and states under a chart; a click picks one workflow out.
  function legend(host, gantt) {
    const paint = () => {
      const used = new Set(gantt.data.placements.map(p => p.workflow));
      const names = gantt.data.workflows.filter(n => used.has(n)).slice(0, 60);
      if (host.dataset.names === names.join()) return;
      host.dataset.names = names.join();
      host.replaceChildren();
      const chip = (tag, text, colour) => {
        const one = document.createElement(tag), dot = document.createElement("i");
        dot.style.background = colour;
        one.append(dot, text);
        host.append(one);
        return one;
      };
      for (const name of names) {
        const one = chip("button", name, gantt.colour.get(name));
        one.type = "button";
        one.className = "key";
        one.setAttribute("aria-pressed", "false");
        one.addEventListener("click", () => {
          const only = gantt.pick(name);
          host.querySelectorAll(".key").forEach(k => k.setAttribute("aria-pressed", String(k === one && only === name)));
        });
      }
      for (const state of ["planned", "running", "done", "failed", "cancelled"]) chip("span", state, STATES[state]);
    };
    paint();
    return paint;
  }

  window.vgrads = {Gantt, legend, duration};
})();
