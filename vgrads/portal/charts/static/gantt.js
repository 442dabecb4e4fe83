// The Gantt chart: a lane per slot, as high as its processors; plan and reality; what the reader does with it.
"use strict";
(() => {
  const {TOP, GAP, FOOT, duration, count, colours, planned, actual, lanes, horizon} = window.vgrads;
  const {percent, unlikely} = window.vgrads;
  const grouped = bars => {
    const map = new Map();
    for (const bar of bars) {
      if (map.has(bar.item.slot)) map.get(bar.item.slot).push(bar);
      else map.set(bar.item.slot, [bar]);
    }
    return map;
  };
  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

  class Gantt extends window.vgrads.Painting {
    constructor(host, data, options = {}) {
      super();
      this.host = host;
      this.options = options;
      this.view = [0, 1];
      this.whole = false;
      this.fitted = true;
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
      button("Fit", "Show all that happened", () => { this.setWhole(false); });
      this.span = button("To the deadline", "Show the whole time up to the deadline, or what happened",
        () => this.setWhole(!this.whole));
      this.fold = button("Fold idle time", "Draw stretches without any slot short",
        () => this.setFolded(!this.folded));
      button("PNG", "Save as a picture", () => this.save());
      this.canvas = make("canvas", "gantt-canvas");
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute("role", "application");
      this.canvas.setAttribute("aria-roledescription", "Gantt chart");
      this.scroller = make("div", "gantt-scroll");
      this.spacer = make("div", "gantt-spacer");
      this.scroller.append(this.canvas, this.spacer);
      this.scroller.addEventListener("scroll", () => this.draw());
      this.tip = make("div", "gantt-tip");
      this.tip.hidden = true;
      this.detail = make("div", "gantt-detail");
      this.detail.setAttribute("role", "status");
      this.below = make("button", "gantt-below");
      this.below.type = "button";
      this.below.hidden = true;
      this.below.addEventListener("click", () => { this.scroll += 0.8 * this.height; });
      const frame = make("div", "gantt-frame");
      frame.append(this.scroller, this.below);
      this.host.append(this.bar, frame, this.tip, this.detail);
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
        if (e.pointerType === "mouse") this.scroll = from.scroll + from.y - e.offsetY;
        this.draw();
      });
      c.addEventListener("pointerup", e => {
        if (from && !moved) this.explain(this.at(e.offsetX, e.offsetY));
        from = null;
      });
      c.addEventListener("pointercancel", () => { from = null; });
      c.addEventListener("pointerleave", () => { this.tip.hidden = true; this.join(null); });
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

    get scroll() { return this.scroller.scrollTop; }
    set scroll(y) { this.scroller.scrollTop = y; }

    step(by) {
      const all = this.parts[this.parts.length - 1].bars;
      if (!all.length) return;
      this.focus = (this.focus + by + all.length) % all.length;
      const bar = all[this.focus], at = this.u((bar.start + bar.end) / 2);
      const width = this.view[1] - this.view[0];
      if (at < this.view[0] || at > this.view[1]) this.setView(at - width / 2, at + width / 2);
      this.scroll = clamp(this.tops.get(bar.item.slot).top - this.height / 2, 0, 1e9);
      this.canvas.setAttribute("aria-label", this.describe(bar).replaceAll("\n", ", "));
    }

    // Bring a task, or a slot, into view: the task has the focus, with some time before and after it.
    open(task, slot) {
      const named = ({item}) => `${item.workflow}/${item.task}` === task;
      const find = () => this.parts[this.parts.length - 1].bars.findIndex(named);
      if (task && find() < 0) this.show("plan");  // it has not started
      this.focus = task ? find() : -1;
      const bar = this.focused(), place = this.tops.get(bar ? bar.item.slot : slot);
      if (bar) {
        const from = this.u(bar.start), to = this.u(bar.end);
        const around = Math.max(2 * (to - from), this.total / 20);
        this.setView(from - around, to + around);
        this.detail.textContent = this.describe(bar);
      }
      this.paint();  // measures its height
      if (place) this.scroll = clamp(place.top - this.height / 2, 0, 1e9);
      this.draw();
    }

    focused() { return this.parts[this.parts.length - 1].bars[this.focus]; }

    update(data) {
      const first = !this.data;
      this.data = data;
      this.colour = colours(data.workflows);
      const ran = data.now_s != null;
      this.modes.get("actual").disabled = this.modes.get("both").disabled = !ran;
      this.bar.hidden = false;
      const goes = data.state === "running" || data.state === "interrupted";
      if (!this.chosen) this.mode = !ran ? "plan" : goes ? "both" : "actual";
      this.began = data.started ? Date.parse(data.started) : null;
      this.top = TOP + (this.began == null ? 0 : 15);
      this.arrange();
      if (first) return;
      if (this.fitted) this.fit();
      this.draw();
    }

    show(mode) { this.mode = mode; this.chosen = true; this.arrange(); if (this.fitted) this.fit(); this.draw(); }
    setWhole(whole) {
      this.whole = whole;
      this.span.setAttribute("aria-pressed", String(whole));
      this.fit();
      this.draw();
    }
    setFolded(folded) { this.folded = folded; this.arrange(); this.fit(); this.draw(); }

    arrange() {
      const data = this.data, parts = [];
      if (this.mode !== "actual") parts.push({real: false, bars: planned(data), lanes: lanes(data, false)});
      if (this.mode !== "plan") parts.push({real: true, bars: actual(data), lanes: lanes(data, true)});
      for (const part of parts) part.bySlot = grouped(part.bars);
      this.parts = parts;
      const ends = parts.flatMap(p => [...p.lanes.map(l => l.end), ...p.bars.map(b => b.end)]);
      this.end = Math.max(data.deadline_s, data.now_s ?? 0, ...ends, 1) * 1.02;
      this.makeScale();
      this.horizon_s = horizon(data, parts);
      const widest = Math.max(1, ...data.slots.map(s => s.procs));
      const all = Math.max(1, data.slots.reduce((sum, s) => sum + s.procs, 0) * parts.length);
      const room = this.most() - this.top - FOOT - data.slots.length * GAP;
      this.per = clamp(Math.min(74 / widest, room / all), 1, 26);
      this.tops = new Map();
      let y = this.top;
      for (const slot of data.slots) {
        const one = Math.max(18, slot.procs * this.per);
        this.tops.set(slot.id, {top: y, one, height: one * parts.length + (parts.length - 1) * 3});
        y += one * parts.length + GAP;
      }
      this.content = y + FOOT;
      for (const [mode, b] of this.modes) b.setAttribute("aria-pressed", String(mode === this.mode));
      this.fold.setAttribute("aria-pressed", String(this.folded));
      this.canvas.setAttribute("aria-label", `Gantt chart of ${data.name}: ${count(data.slots.length, "slot")}, ` +
        `${count(data.placements.length, "task")}. Arrows move, plus and minus zoom, n and p go from task to task, ` +
        "Enter explains.");
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
      for (const [t0, t1, u0, u1] of this.pieces) {
        if (t <= t1) return u0 + (Math.max(t, t0) - t0) / (t1 - t0) * (u1 - u0);
      }
      return this.total;
    }

    most() { return this.options.height || clamp(0.8 * window.innerHeight, 400, 900); }
    // Where on the clock a place on the scale is.
    until(u) {
      const [t0, t1, u0, u1] = this.pieces.find(p => u <= p[3]) || this.pieces[this.pieces.length - 1];
      return t0 + (u - u0) / Math.max(1e-9, u1 - u0) * (t1 - t0);
    }

    inner() { return Math.max(60, this.canvas.clientWidth - this.left - 12); }
    x(t) { return this.left + (this.u(t) - this.view[0]) / (this.view[1] - this.view[0]) * this.inner(); }
    fit() { this.view = [0, this.whole ? this.total : Math.min(this.total, this.u(this.horizon_s))];
      this.fitted = true; }

    setView(from, to) {
      const width = clamp(to - from, this.total / 5000, this.total);
      from = clamp(from, 0, this.total - width);
      this.view = [from, from + width];
      this.fitted = false;
    }

    pan(share) { const by = share * (this.view[1] - this.view[0]); this.setView(this.view[0] + by, this.view[1] + by);
      this.draw(); }

    zoom(factor, x) {
      const [a, b] = this.view, share = x == null ? 0.5 : clamp((x - this.left) / this.inner(), 0, 1);
      const at = a + share * (b - a), width = clamp((b - a) * factor, this.total / 5000, this.total);
      this.setView(at - share * width, at - share * width + width);
      this.draw();
    }

    draw() {
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame(() => { this.waiting = false; this.paint(); });
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

    describe(thing) {
      if (thing.slot) {
        const s = thing.slot, seen = s.actual || {};
        const likely = s.ready_p50_s == null ? "" : `likely ready at ${duration(s.ready_p50_s)}, `;
        const late = s.ready_p95_s == null ? "perhaps never" : duration(s.ready_p95_s);
        return [`${s.id} (${s.kind}, ${count(s.procs, "processor")})`,
          `requested at ${duration(s.submit_s)}, ${likely}needed from ${duration(s.start_s)}`,
          s.ready_p5_s == null ? "" : `ready ${duration(s.ready_p5_s)} to ${late} (5–95 %)`,
          seen.ready_s != null ? `was ready at ${duration(seen.ready_s)}` : "",
          `ready when it is needed with ${percent(s.probability)}`
            + (s.cost_usd ? `, $${s.cost_usd.toFixed(2)}` : ""),
          unlikely(this.data, s),
          `state ${s.state}${seen.reason ? ": " + seen.reason : ""}`].filter(Boolean).join("\n");
      }
      const p = thing.item;
      const replica = p.copy ? ` (replica ${p.copy + 1})` : "";
      return [`${p.workflow} · ${p.task}${replica}`,
        `${duration(thing.start)} to ${duration(thing.end)}, ${count(p.procs, "processor")}`,
        `planned ${duration(p.start_s)} to ${duration(p.end_s)} in ${p.slot}`,
        `probability ${percent(p.probability)}`,
        `state ${p.state}${p.reason ? ": " + p.reason : ""}`].join("\n");
    }

    hover(x, y) {
      const thing = this.at(x, y);
      this.tip.hidden = !thing;
      this.join(thing && thing.item ? thing.item.workflow + "/" + thing.item.task : null);
      this.canvas.style.cursor = thing && thing.item ? "pointer" : "grab";
      if (!thing) return;
      this.tip.textContent = this.describe(thing);
      const right = x > this.canvas.clientWidth * 0.65;
      this.tip.style.left = right ? "" : x + 14 + "px";
      this.tip.style.right = right ? this.canvas.clientWidth - x + 14 + "px" : "";
      this.tip.style.top = this.scroller.offsetTop + y + 16 + "px";
    }

    async explain(thing) {
      if (!thing) { this.detail.textContent = ""; return; }
      let text = this.describe(thing);
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

  window.vgrads.Gantt = Gantt;
})();
