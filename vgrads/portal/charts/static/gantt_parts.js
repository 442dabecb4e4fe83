// What the Gantt chart is drawn from: durations, colours, where bars and lanes go, the key under it.
"use strict";
(() => {
  const TOP = 46, GAP = 14, FOOT = 12;  // pixels above, between and below lanes
  const STATES = {planned: "#8a8f98", waiting: "#8a8f98", running: "#0072b2", done: "#4a5058", failed: "#d55e00",
    cancelled: "#e69f00", skipped: "#b9bec7"};
  // As Okabe and Ito chose them, for eyes of every kind; softened, and where there are more workflows, lighter and
  // darker.
  const HUES = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00", "#f0e442"];
  const SHADES = [[255, 0.3], [255, 0.62], [0, 0.25]];

  function count(n, noun) {
    return `${n} ${noun}${n === 1 ? "" : "s"}`;
  }

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

  const channels = colour => [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16));

  function colours(names) {
    return new Map(names.map((name, i) => {
      const [towards, share] = SHADES[Math.floor(i / HUES.length) % SHADES.length];
      const mixed = channels(HUES[i % HUES.length]).map(c => Math.floor(c + share * (towards - c) + 0.5));
      return [name, "#" + mixed.map(c => c.toString(16).padStart(2, "0")).join("")];
    }));
  }

  // Black or white, whichever is read more easily on a colour.
  function readable(colour) {
    const linear = c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = channels(colour).map(c => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#101418" : "#ffffff";
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
      if (!real) return {slot, start: Math.min(slot.start_s, slot.ready_p50_s ?? slot.start_s), end: slot.end_s};
      const seen = slot.actual || {};
      if (seen.ready_s == null) return {slot, start: 0, end: 0};
      return {slot, start: seen.ready_s, end: seen.ended_s ?? Math.max(data.now_s ?? 0, seen.ready_s)};
    });
  }

  // How far a chart reaches that shows what there is; the deadline with it, unless it is much later.
  function horizon(data, parts) {
    const goes = data.state === "running" || data.state === "interrupted";
    const ends = parts.flatMap(p => [...p.lanes.map(l => l.end), ...p.bars.map(b => b.end)]);
    if (goes) ends.push(...data.placements.map(p => p.end_s));
    const seen = Math.max(0, ...ends) || data.deadline_s;
    return data.deadline_s > 1.25 * seen ? 1.04 * seen : 1.02 * Math.max(seen, data.deadline_s);
  }

  // A probability in whole percents; never 0 % or 100 %.
  function percent(p) {
    const whole = Math.round(100 * p);
    return whole > 99 ? "> 99 %" : whole < 1 ? "< 1 %" : `${whole} %`;
  }

  // Why a slot is in the plan although it is hardly ever ready when it is needed.
  function unlikely(data, slot) {
    if (Math.round(100 * slot.probability) >= 1) return "";
    const named = p => `${p.workflow}/${p.task}`, others = new Set(), own = [];
    for (const p of data.placements) if (p.slot === slot.id) own.push(named(p)); else others.add(named(p));
    const late_s = slot.ready_p50_s == null ? 0 : slot.ready_p50_s - slot.start_s;
    const late = late_s > 0 ? `likely ready ${duration(late_s)} later` : "perhaps never ready";
    const use = own.every(task => others.has(task))
      ? "used only for tasks that are not done in another slot by then" : "its tasks begin then";
    return `${late}: ${use}`;
  }

  // Names of lanes as long as there is room (`fits`): what all have in common is left out first, so they
  // stay different.
  function shorten(names, fits) {
    const common = (a, b) => {
      let n = 0;
      while (n < Math.min(a.length, b.length) && a[n] === b[n]) n++;
      return n;
    };
    const atWord = (text, n) => Math.max(...[..."-_./:@ "].map(sign => text.lastIndexOf(sign, n - 1) + 1));
    const turned = text => [...text].reverse().join("");
    const shared = texts => texts.length < 2 ? 0
      : atWord(texts[0], Math.min(...texts.slice(1).map(text => common(texts[0], text))));
    const head = shared(names), tail = shared(names.map(turned));
    const parts = name => name.slice(head, Math.max(head + 1, name.length - tail)).split(/(?<=[-_./:@ ])/);
    const how = [
      name => name,
      name => (head ? "…" : "") + name.slice(head),
      name => (head ? "…" : "") + parts(name).join("") + (tail ? "…" : ""),
      name => parts(name).length < 3 ? name.slice(head) : `${parts(name)[0]}…${parts(name).at(-1)}`,
    ];
    const differ = texts => new Set(texts).size === new Set(names).size;
    const ways = how.filter(way => differ(names.map(way)));
    return new Map(names.map(name => [name, (ways.find(way => fits(way(name))) || ways.at(-1))(name)]));
  }

  // The key of workflows and states under a chart; a click picks one workflow out.
  function legend(host, gantt) {
    const paint = () => {
      const used = new Set(gantt.data.placements.map(p => p.workflow));
      const names = gantt.data.workflows.filter(n => used.has(n)).slice(0, 60);
      const before = gantt.data.done || [], runs = [...new Set(before.map(d => d.run))];
      const shown = [...names, before.length].join();
      if (host.dataset.names === shown) return;
      host.dataset.names = shown;
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
          host.querySelectorAll(".key").forEach(k => k.setAttribute("aria-pressed",
            String(k === one && only === name)));
        });
      }
      for (const state of ["planned", "running", "done", "failed", "cancelled", "skipped"]) {
        chip("span", state, STATES[state]);
      }
      for (const [kind, text] of [["slot", "slot, as high as its processors; % ready when it is needed"],
        ["wait", "when its queue may start it: 5–95 %, tick at the median"],
        ["copy", "a replica of a task"], ["lost", "a slot that was lost"], ["deadline", "deadline"],
        ["now", "now"]]) chip("span", text, "").firstChild.className = kind;
      if (before.length) chip("span",
        `${before.length} done before, in ${runs.length === 1 ? runs[0] : count(runs.length, "run")}`, STATES.done);
    };
    paint();
    return paint;
  }

  window.vgrads = {TOP, GAP, FOOT, STATES, duration, count, colours, readable, planned, actual, lanes,
    horizon, legend, percent, unlikely, shorten};
})();
