// When a job that is submitted now starts, as an interval, in each element with data-vgrads-queue.
// Copy to /var/www/ood/public/vgrads_wait.js, and name it in custom_javascript_files.
"use strict";
(() => {
  const BOUNDS = [[0.5, "1 of 2"], [0.95, "19 of 20"]]; // probability of a start by then, in words
  const UNITS = [[86400, 2, "d"], [3600, 2, "h"], [60, 0, "min"]]; // seconds, used from so many on
  const FRESH_MS = 60000; // cards are drawn anew every few seconds
  const answers = new Map();

  const fetchBound = async (element, probability) => {
    const { vgradsUrl, vgradsQueue, vgradsProcs, vgradsWalltimeS, vgradsToken } = element.dataset;
    const [site, queue] = vgradsQueue.split(/\/(.*)/).map(encodeURIComponent);
    const values = { procs: vgradsProcs || 1, walltime_s: vgradsWalltimeS || 3600, probability };
    const path = `/v1/sites/${site}/queues/${queue}/bound?${new URLSearchParams(values)}`;
    const headers = vgradsToken ? { Authorization: `Bearer ${vgradsToken}` } : {};
    const answer = await fetch(vgradsUrl + path, { headers, credentials: "omit" });
    if (!answer.ok) throw new Error(`${answer.status} of ${path}`);
    return (await answer.json()).bound_s;
  };

  const describe = ([low, high]) => {
    if (low === null || high === null) return "no forecast yet";
    const [unit, , name] = UNITS.find(([seconds, from]) => high >= from * seconds);
    const digits = unit > 60 ? 1 : 0;
    const [first, last] = [low, high].map((s) => +(Math.ceil((s / unit) * 10 ** digits) / 10 ** digits));
    const range = first < last ? `${first} to ${last}` : `${last}`;
    return `starts within ${range} ${name} (${BOUNDS.map(([, words]) => words).join(" to ")} jobs)`;
  };

  const show = async (element) => {
    element.dataset.vgradsState = "asking";
    const key = JSON.stringify(element.dataset);
    const stored = answers.get(key);
    const fresh = stored && Date.now() - stored.at < FRESH_MS;
    const text = fresh ? stored.text
      : Promise.all(BOUNDS.map(([probability]) => fetchBound(element, probability))).then(describe);
    if (!fresh) answers.set(key, { at: Date.now(), text });
    try {
      element.textContent = await text;
      element.dataset.vgradsState = "shown";
    } catch (error) {
      element.textContent = "no forecast";
      element.dataset.vgradsState = "failed";
      console.warn("vgrads:", error.message);
    }
  };

  const showAll = () =>
    document.querySelectorAll("[data-vgrads-queue]:not([data-vgrads-state])").forEach(show);
  const begin = () => {
    showAll();
    new MutationObserver(showAll).observe(document.body, { childList: true, subtree: true });
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
