// What the pages do beyond what the server wrote: live charts, runs, what-if, handing over, logging in.
"use strict";
(() => {
  const main = document.querySelector("main");
  const say = (id, text) => { const e = document.getElementById(id); if (e) e.textContent = text; };

  async function ask(path, options = {}) {
    const answer = await fetch(path, {cache: "no-cache", ...options,
      headers: {...(options.body ? {"Content-Type": "application/json"} : {}), ...(options.headers || {})}});
    const body = answer.status === 204 ? {} : await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(body.detail || `${answer.status} ${answer.statusText}`);
    return body;
  }

  // A line chart: series of [x, y] in 0..1 on y, with names on the axes.
  function lines(host, series, {xmax, xlabel, requested}) {
    const W = 460, H = 190, L = 46, B = 26, R = 44, ns = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(ns, "svg");
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", host.dataset.label || "chart");
    const add = (name, attributes, text) => {
      const e = document.createElementNS(ns, name);
      for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
      if (text != null) e.textContent = text;
      svg.append(e);
    };
    const x = v => L + v / (xmax || 1) * (W - L - R), y = v => 8 + (1 - v) * (H - B - 8);
    for (const v of [0, .25, .5, .75, 1]) {
      add("line", {class: "axis", x1: L, x2: W - R, y1: y(v), y2: y(v)});
      add("text", {class: "label", x: L - 6, y: y(v) + 4, "text-anchor": "end"}, Math.round(100 * v) + "%");
    }
    for (const v of [0, .5, 1]) add("text", {class: "label", x: x(v * xmax), y: H - 8, "text-anchor": "middle"},
      xlabel(v * xmax));
    if (requested != null) add("line", {class: "requested", x1: L, x2: W - R, y1: y(requested), y2: y(requested)});
    for (const {points, className, dots, steps} of series) {
      if (!points.length) continue;
      const drawn = steps ? points.flatMap(([a, b], i) => i ? [[a, points[i - 1][1]], [a, b]] : [[a, b]]) : points;
      add("polyline",
        {class: className, points: drawn.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ")});
      if (dots) for (const [a, b] of points) add("circle", {class: "mark", cx: x(a), cy: y(b), r: 2.5});
    }
    host.replaceChildren(svg);
  }

  // A part of a page, fetched anew as the server writes it; false where the page no longer exists.
  async function renew(id, path) {
    const answer = await fetch(path, {cache: "no-cache", headers: {Accept: "text/html"}});
    if (answer.status === 404) return false;
    if (!answer.ok) return true;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html"),
      host = document.getElementById(id);
    const part = fresh.getElementById(id);
    if (part) for (const {name, value} of part.attributes) host.setAttribute(name, value);
    host.replaceChildren(...(part || fresh.body).childNodes);
    clocks(host);
    return true;
  }

  // Instants in the zone of whoever reads.
  function clocks(host) {
    const hours = {hour: "2-digit", minute: "2-digit"}, days = {weekday: "short", day: "numeric", month: "short"};
    const today = new Intl.DateTimeFormat(undefined, hours);
    const near = new Intl.DateTimeFormat(undefined, {...days, ...hours});
    const far = new Intl.DateTimeFormat(undefined, {...days, ...hours, year: "numeric"});
    const full = new Intl.DateTimeFormat(undefined, {...days, ...hours, year: "numeric", timeZoneName: "short"});
    const now = new Date();
    for (const one of host.querySelectorAll("time[datetime]")) {
      const at = new Date(one.dateTime), same = at.toDateString() === now.toDateString();
      one.textContent = (same ? today : at.getFullYear() === now.getFullYear() ? near : far).format(at);
      one.title = full.format(at);
    }
  }

  // What costs something is requested about on the page; without scripts the link leads to a page that asks.
  function confirmed(link, dialog) {
    link.addEventListener("click", async e => {
      e.preventDefault();
      await renew(dialog.id, link.href);
      dialog.querySelector("[data-close]").addEventListener("click", e => { e.preventDefault(); dialog.close(); });
      dialog.showModal();
    });
  }

  // A page of which one part is fetched again as long as something goes on.
  function livePage(id) {
    const again = async () => {
      if (document.getElementById(id).dataset.live !== "yes") return;
      await renew(id, location.href).catch(() => {});
      setTimeout(again, 3000);
    };
    setTimeout(again, 3000);
  }

  async function setPage() {
    const id = main.dataset.set, base = `/v1/workflow-sets/${id}`, host = document.getElementById("gantt");
    const why = async item => {
      const which = new URLSearchParams({task: `${item.workflow}/${item.task}`});
      return (await ask(`${base}/explain?${which}`)).text;
    };
    const status = () => document.getElementById("status").dataset;
    let chart = null, key = null, source = null, timer = null, gone = false;
    const deleted = () => {
      if (gone) return;
      gone = true;
      source?.close();
      say("note", "This set was deleted. What is shown here is its last state.");
    };
    const refresh = async () => {
      timer = null;
      if (!host || gone) return;
      let data;
      try { data = await ask(`${base}/gantt`); } catch (error) { say("note", error.message); return; }
      if (chart) chart.update(data);
      else {
        chart = new vgrads.Gantt(host, data, {why});
        key = vgrads.legend(document.getElementById("legend"), chart);
        window.vgrads.chart = chart;
        const what = new URLSearchParams(location.search);
        if (what.has("task") || what.has("slot")) {
          chart.open(what.get("task"), what.get("slot"));
          host.scrollIntoView();  // it had no height when the address led to it
        }
      }
      key();
      decisions(data);
      if (data.state !== status().stored) await parts();  // the chart and the sentence say the same
      host.dataset.drawn = data.state;
    };
    const decisions = data => {
      document.getElementById("decisions").replaceChildren(...data.decisions.map(d => {
        const li = document.createElement("li"), b = document.createElement("b");
        b.textContent = vgrads.duration(d.at_s) + " ";
        li.append(b, d.text);
        return li;
      }));
      document.getElementById("decided").hidden = !data.decisions.length;
    };
    const soon = () => { timer ??= setTimeout(refresh, 600); };
    const search = document.getElementById("find");
    const tasks = async () => search
      && renew("tasks", `/sets/${id}/tasks?` + new URLSearchParams({find: search.find.value}));
    const graph = async () => {
      const choice = document.querySelector("#choose select");
      if (document.getElementById("graph")) await renew("graph",
        `/sets/${id}/graph` + (choice ? "?" + new URLSearchParams({workflow: choice.value}) : ""));
    };
    const parts = async () => {
      if (gone) return;
      try {
        if (!await renew("status", `/sets/${id}/status`)) { deleted(); return; }
        await Promise.all([tasks(), graph()]);
      } catch { /* the service is away for a moment: the next look tries again */ }
    };
    let typed = null;
    search?.addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(tasks, 250); });
    search?.addEventListener("submit", e => { e.preventDefault(); tasks(); });
    document.addEventListener("change", e => { if (e.target.closest("#choose")) graph(); });
    const promise = async () => {
      const history = await ask(`${base}/promise`).catch(() => ({points: []}));
      if (!history.points.length) return;
      document.getElementById("over-time").hidden = false;
      const last = Math.max(...history.points.map(p => p.at_s), 1), total = Number(main.dataset.workflows);
      lines(document.getElementById("promise"), [
        {points: history.points.map(p => [p.at_s, p.probability]), className: "line", dots: true},
        {points: history.points.map(p => [p.at_s, p.done / total]), className: "cost", steps: true},
      ], {xmax: last, xlabel: vgrads.duration, requested: Number(main.dataset.requested)});
    };
    const over = () => {
      const run = document.getElementById("run");
      if (run) run.hidden = false;
      document.getElementById("cancel").hidden = true;
      parts();
    };
    // As long as the set is planned, or waits for it: the page of the plan follows by itself.
    const planned = async () => {
      await parts();
      if (gone) return;
      if (status().stored !== "planning" && status().state !== "planning") location.reload();
      else setTimeout(planned, 1000);
    };
    const follow = () => {
      source?.close();
      source = new EventSource(`${base}/events`);
      const since = Date.now();
      const looks = setInterval(parts, 3000);
      let drawn = 0;
      const kinds = ["slot", "again", "copy", "replan", "cancel", "silent", "tick"];
      for (const kind of kinds) source.addEventListener(kind, () => {
        soon();
        if (Date.now() - drawn > 4000) { drawn = Date.now(); promise(); }
      });
      source.addEventListener("end", () => {
        source.close();
        clearInterval(looks);
        over();
        host.dataset.ended = String(Date.now() - since);
        refresh();
        promise();
      });
    };
    for (const act of ["run", "cancel"]) {
      const button = document.getElementById(act);
      if (button) confirmed(button, document.getElementById(`ask-${act}`));
    }
    for (const hint of document.querySelectorAll(".script")) hint.hidden = false;
    await refresh();
    if (main.dataset.state === "planning") setTimeout(planned, 1000);
    else if (main.dataset.run && host) { promise(); if (status().live === "yes") follow(); }
    else if (status().live === "yes") setInterval(parts, 3000);
  }

  function workPage() {
    const form = document.getElementById("filter");
    form?.addEventListener("change", e => { if (e.target.tagName === "SELECT") form.requestSubmit(); });
    livePage("work");
  }

  // The promise and the curves follow the sliders: the server adds one point in each answer.
  function whatIfPage() {
    const form = document.getElementById("wishes"), path = `/sets/${main.dataset.set}/what-if`;
    const computed = document.getElementById("computed");
    let round = 0, stop = null, timer = null;
    const show = () => {
      say("deadline-text", vgrads.duration(Number(form.deadline_s.value)));
      say("needed-text", `${form.needed.value} of ${main.dataset.workflows}`);
      const budget = Number(form.budget_usd.value);
      say("budget-text", form.unlimited.checked ? "no limit" : `$${budget.toFixed(2)}`);
    };
    const answer = document.getElementById("answer");
    // Only what has changed, so the answer is read aloud once.
    const replace = fresh => {
      const host = fresh && document.getElementById(fresh.id);
      if (!host || host.innerHTML === fresh.innerHTML) return;
      host.className = fresh.className;
      Object.assign(host.dataset, fresh.dataset);
      host.replaceChildren(...fresh.childNodes);
    };
    const explain = problem => {
      const p = document.createElement("p");
      p.className = "error";
      p.textContent = problem;
      answer.replaceChildren(p);
      answer.className = "answer tone-bad";
      say("progress", "");
      Object.assign(computed.dataset, {again: "no", failed: "yes"});
    };
    const question = async () => {
      const mine = ++round;
      clearTimeout(timer);
      stop?.abort();
      stop = new AbortController();
      computed.dataset.again = "yes";
      const fields = new FormData(form), headers = {Accept: "text/html", Prefer: "wait=1"};
      if (form.unlimited.checked) fields.delete("budget_usd");
      const query = new URLSearchParams(fields);
      try {
        do {
          const reply = await fetch(`${path}?${query}`, {headers, cache: "no-cache", signal: stop.signal});
          const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
          if (mine !== round) return;
          const part = fresh.getElementById("computed");
          if (part) {
            for (const id of ["answer", "progress", "curves"]) replace(fresh.getElementById(id));
            Object.assign(computed.dataset, {...part.dataset, failed: "no"});
          } else if (reply.status === 404) explain("This set was deleted.");
          else {  // another page: logged out, too many questions
            const message = fresh.querySelector(".message")?.textContent;
            explain(message || `The service answers: ${reply.statusText}.`);
            const pause_s = Number(reply.headers.get("Retry-After")) || 10;
            if (reply.status === 429) timer = setTimeout(question, 1000 * pause_s);
          }
          computed.setAttribute("aria-busy", "false");
        } while (computed.dataset.again === "yes");
      } catch (error) {
        if (mine !== round || error.name === "AbortError") return;
        explain("The service does not answer. Change a value to ask it again.");
      }
    };
    const soon = () => {
      show();
      computed.setAttribute("aria-busy", "true");
      clearTimeout(timer);
      timer = setTimeout(question, 300);
    };
    form.addEventListener("input", soon);
    show();
    question();
  }

  // The form of a set: the promise beside it follows what is typed. Its newest question counts, answers to older
  // ones are ignored.
  function submitPage() {
    const form = document.getElementById("hand-over"), text = form.elements.text,
      run = document.getElementById("run");
    const answer = document.getElementById("answer"), choice = document.getElementById("template");
    const names = ["deadline", "due", "at_least", "probability", "budget_usd"];
    const fields = names.map(id => document.getElementById(id));
    const due = document.getElementById("due");
    const stateZone = () => {
      const at = due.value ? new Date(due.value) : new Date();
      form.elements.zone_min.value = -at.getTimezoneOffset() || 0;
    };
    let round = 0, stop = null, timer = null;
    const copy = (from, to, names) => { for (const name of names) {
      if (from.hasAttribute(name)) to.setAttribute(name, from.getAttribute(name)); else to.removeAttribute(name);
    } };
    const show = fresh => {
      const sent = fresh.getElementById("text");
      if (sent.dataset.new === "yes") {  // a set was made of the workflow that was sent
        text.value = sent.value;
        choice.options[0].dataset.text = text.value;
        choice.selectedIndex = 0;
      }
      const stated = ["aria-invalid", "aria-describedby", "placeholder"];
      for (const e of [text, ...fields]) copy(fresh.getElementById(e.id), e, stated);
      for (const id of ["answer", "problem"]) {
        document.getElementById(id).replaceChildren(...fresh.getElementById(id).childNodes);
      }
      const next = fresh.getElementById("answer"), offer = fresh.getElementById("run");
      copy(next, answer, ["class", "data-again"]);
      if (next.dataset.again === "yes") return;
      copy(offer, run, ["value", "hidden"]);
      run.textContent = offer.textContent;
      copy(fresh.getElementById("send"), document.getElementById("send"), ["class"]);
      run.disabled = false;
      answer.setAttribute("aria-busy", "false");
      answer.dataset.ready = "yes";
    };
    const explain = problem => {
      const p = document.createElement("p");
      p.textContent = problem;
      answer.replaceChildren(p);
      answer.setAttribute("aria-busy", "false");
    };
    const stale = () => {
      run.disabled = true;
      answer.setAttribute("aria-busy", "true");
      answer.dataset.ready = "no";
    };
    const question = async () => {
      const mine = ++round;
      clearTimeout(timer);
      stop?.abort();
      stop = new AbortController();
      stale();
      stateZone();
      const body = new URLSearchParams(new FormData(form)), headers = {Accept: "text/html", Prefer: "wait=2"};
      try {
        do {
          const reply = await fetch("/submit/promise", {method: "POST", body, headers, signal: stop.signal});
          const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
          if (mine !== round) return;
          if (fresh.getElementById("answer")) show(fresh);
          else {  // another page: logged out, too many questions
            answer.dataset.again = "no";
            explain(fresh.querySelector("main")?.textContent.trim() || reply.statusText);
            const later_s = Number(reply.headers.get("Retry-After")) || 10;
            if (reply.status === 429) timer = setTimeout(question, 1000 * later_s);
          }
        } while (answer.dataset.again === "yes");
      } catch (error) {
        if (mine === round && error.name !== "AbortError") {
          explain("The service does not answer. Change something to ask it again.");
        }
      }
    };
    const soon = () => { stale(); clearTimeout(timer); timer = setTimeout(question, 600); };
    const replace = value => { text.value = value; text.setSelectionRange(0, 0); text.scrollTop = 0; question(); };
    text.addEventListener("input", () => { choice.options[0].dataset.text = text.value; choice.selectedIndex = 0;
      soon(); });
    for (const e of fields) {
      e.addEventListener("input", soon);
      e.addEventListener("keydown", key => { if (key.key === "Enter") { key.preventDefault(); question(); } });
    }
    document.getElementById("sites")?.addEventListener("change", soon);
    choice.addEventListener("change", () => replace(choice.selectedOptions[0].dataset.text));
    document.getElementById("file").addEventListener("change", async e => {
      const file = e.target.files[0];
      if (!file) return;
      if (file.size > 1e6) { explain(`${file.name} has more than 1 MB: submit it with the command or over REST.`);
        return; }
      choice.options[0].dataset.text = await file.text();
      choice.selectedIndex = 0;
      replace(choice.options[0].dataset.text);
    });
    answer.addEventListener("click", e => {
      const remedy = e.target.closest("button[name]");
      if (!remedy) return;
      e.preventDefault();
      const field = document.getElementById(remedy.name);  // not by its name, which the button has too
      field.value = remedy.value;
      if (field.id === "deadline") due.value = "";
      field.focus();
      question();
    });
    document.getElementById("problem").addEventListener("click", e => {
      const line = Number(e.target.closest("[data-line]")?.dataset.line), rows = text.value.split("\n");
      if (!line) return;
      e.preventDefault();
      const start = rows.slice(0, line - 1).join("\n").length + (line > 1);
      text.focus();
      text.setSelectionRange(start, start + rows[line - 1].length);
      text.scrollTop = (line - 3) * parseFloat(getComputedStyle(text).lineHeight);
    });
    form.addEventListener("submit", stateZone);
    for (const part of document.querySelectorAll(".script")) part.hidden = false;
    document.getElementById("zone").textContent = "your time";
    if (text.getAttribute("aria-invalid") !== "true"
      && !document.getElementById("problem").textContent.trim()) question();
  }

  // The list of routes: what is typed selects among them; an address within opens its route.
  function apiPage() {
    const search = document.getElementById("find"), entries = [...document.querySelectorAll("details.route")];
    const texts = new Map(entries.map(entry => [entry, entry.textContent.toLowerCase()]));
    const show = () => {
      const words = search.find.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const [entry, text] of texts) entry.hidden = !words.every(word => text.includes(word));
      for (const part of document.querySelectorAll("main section"))
        part.hidden = !part.querySelector("details:not([hidden])");
    };
    const open = () => {
      const entry = document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest("details");
      if (!entry) return;
      entry.open = true;
      document.getElementById(decodeURIComponent(location.hash.slice(1))).scrollIntoView();
    };
    search.addEventListener("input", show);
    addEventListener("hashchange", open);
    open();
  }

  function tokensPage() {
    const secret = document.getElementById("secret"), copy = document.getElementById("copy");
    if (!secret) return;
    secret.select();
    copy.hidden = !navigator.clipboard;
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(secret.value);
      say("copied", "Copied.");
    });
  }

  clocks(document);
  const pages = {set: setPage, work: workPage, whatif: whatIfPage, submit: submitPage, api: apiPage,
    tokens: tokensPage};
  pages[main?.dataset.page]?.();
})();
