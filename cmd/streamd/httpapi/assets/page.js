"use strict";
// The server renders the page; this fetches it again, swaps <main> and draws
// the rate from the counts that it remembers. It sends the token that was typed
// in, which the tab forgets when it is closed.
(() => {
  const everyMs = 2000;
  const samplesKept = 90; // three minutes
  const samples = []; // {at: ms on the server's clock, read: rows}

  const tokenKey = "streamd.token";
  let picture = { src: "", url: "" }; // of the regions, fetched with the token

  function get(path) {
    const token = sessionStorage.getItem(tokenKey);
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    return fetch(path, { headers, signal: AbortSignal.timeout(10000) });
  }

  // The browser fetches an image without the token, so the script does.
  async function drawPicture(main) {
    const image = main.querySelector("img.regions");
    if (!image || !sessionStorage.getItem(tokenKey)) return;
    const src = image.getAttribute("src");
    image.removeAttribute("src");
    if (picture.src !== src) {
      const answer = await get(src);
      if (!answer.ok) return;
      URL.revokeObjectURL(picture.url);
      picture = { src, url: URL.createObjectURL(await answer.blob()) };
    }
    image.src = picture.url;
  }

  function sample() {
    if (document.querySelector("form.signin")) return;
    const { now, read } = document.querySelector("main").dataset;
    const last = samples[samples.length - 1];
    const next = { at: Number(now), read: Number(read) };
    if (last && (next.read < last.read || next.at <= last.at)) samples.length = 0; // the daemon was restarted
    samples.push(next);
    if (samples.length > samplesKept) samples.shift();
  }

  function draw() {
    if (document.querySelector("form.signin")) return;
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
    if (document.querySelector("form.signin") && !sessionStorage.getItem(tokenKey)) return;
    let fresh = false;
    try {
      const answer = await get("/");
      const main = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      if (answer.status === 401) sessionStorage.removeItem(tokenKey);
      if (main) {
        await drawPicture(main);
        document.querySelector("main").replaceWith(document.adoptNode(main));
        sample();
        draw();
        fresh = true;
      }
    } catch { /* shown as stale until the daemon answers again */ }
    document.documentElement.classList.toggle("stale", !fresh);
  }

  document.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(tokenKey, new FormData(event.target).get("token").trim());
    refresh();
  });

  // Links are followed without the token, too.
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("footer a");
    if (!link || !sessionStorage.getItem(tokenKey)) return;
    event.preventDefault();
    const answer = await get(link.getAttribute("href"));
    location.assign(URL.createObjectURL(await answer.blob()));
  });

  async function loop() {
    if (!document.hidden) await refresh();
    setTimeout(loop, everyMs);
  }

  sample();
  if (sessionStorage.getItem(tokenKey)) refresh();
  setTimeout(loop, everyMs);
})();
