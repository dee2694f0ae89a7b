"use strict";
// The server renders the page; this fetches it again, swaps <main> and draws
// the rate from the counts that it remembers.
(() => {
  const everyMs = 2000;
  const samplesKept = 90; // three minutes
  const samples = []; // {at: ms on the server's clock, read: rows}

  function sample() {
    const { now, read } = document.querySelector("main").dataset;
    const last = samples[samples.length - 1];
    const next = { at: Number(now), read: Number(read) };
    if (last && (next.read < last.read || next.at <= last.at)) samples.length = 0; // the daemon was restarted
    samples.push(next);
    if (samples.length > samplesKept) samples.shift();
  }

  function draw() {
    const rates = samples.slice(1).map((s, i) => (s.read - samples[i].read) / (s.at - samples[i].at) * 1000);
    if (rates.length === 0) return;
    document.getElementById("rate").textContent =
      Math.round(rates[rates.length - 1]).toLocaleString("en").replaceAll(",", "\u202f") + " rows/s";
    if (rates.length < 2) return;
    const peak = Math.max(1, ...rates);
    const points = rates.map((r, i) =>
      (i * 240 / (rates.length - 1)).toFixed(1) + " " + (46 - r / peak * 42).toFixed(1));
    const spark = document.getElementById("spark");
    const path = (className, d) => {
      const p = document.createElementNS("http://www.w3.org/2000/svg", "path");
      p.setAttribute("class", className);
      p.setAttribute("d", d);
      spark.append(p);
    };
    path("area", "M0 48L" + points.join("L") + "L240 48z");
    path("line", "M" + points.join("L"));
  }

  async function refresh() {
    let fresh = false;
    try {
      const answer = await fetch("/", { signal: AbortSignal.timeout(10000) });
      if (answer.ok) {
        const main = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
        document.querySelector("main").replaceWith(document.adoptNode(main));
        sample();
        draw();
        fresh = true;
      }
    } catch { /* shown as stale until the daemon answers again */ }
    document.documentElement.classList.toggle("stale", !fresh);
  }

  async function loop() {
    if (!document.hidden) await refresh();
    setTimeout(loop, everyMs);
  }

  sample();
  setTimeout(loop, everyMs);
})();
