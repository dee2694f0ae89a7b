// The server renders the page. This module fetches it again and swaps the sections that
// have changed. A section with data-keep belongs to a module of its own and stays until
// the value of data-keep changes.
import { get, hasToken, keepToken, dropToken } from "./access.js";

const everyMs = 2000;
let picture = { src: "", url: "" }; // of the regions, fetched with the token

// sent has the sections by id as the server sent them, before scripts changed them.
const sent = new Map();
for (const section of document.querySelector("main").children) sent.set(section.id, section.outerHTML);

const signsIn = (main) => main.querySelector("form.signin") !== null;

// merge puts the sections of next into the page. Those that are the same stay, with what
// is selected, scrolled or typed in them.
function merge(next) {
  const main = document.querySelector("main");
  if (signsIn(main) || signsIn(next)) {
    if (signsIn(main) && signsIn(next) && main.outerHTML === next.outerHTML) return;
    sent.clear();
    for (const section of next.children) sent.set(section.id, section.outerHTML);
    main.replaceWith(document.adoptNode(next));
    return;
  }
  const wanted = [];
  for (const section of [...next.children]) {
    const html = section.outerHTML;
    const old = document.getElementById(section.id);
    const keeps = old && section.dataset.keep !== undefined && section.dataset.keep === old.dataset.keep;
    if (keeps || old && sent.get(section.id) === html) {
      wanted.push(old);
      continue;
    }
    const node = document.adoptNode(section);
    if (old) {
      const scrolled = [...old.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
      old.replaceWith(node);
      node.querySelectorAll(".scroll").forEach((box, i) => { box.scrollLeft = scrolled[i] ?? 0; });
    }
    sent.set(section.id, html);
    wanted.push(node);
  }
  for (const section of [...main.children]) if (!wanted.includes(section)) section.remove();
  wanted.forEach((section, i) => {
    if (main.children[i] !== section) main.insertBefore(section, main.children[i] ?? null);
  });
}

// The browser fetches an image without the token, so the script does.
async function drawPicture(main) {
  const image = main.querySelector("img.regions");
  if (!image || !hasToken()) return;
  const src = image.getAttribute("src");
  if (picture.src !== src) {
    const answer = await get(src);
    if (!answer.ok) return;
    URL.revokeObjectURL(picture.url);
    picture = { src, url: URL.createObjectURL(await answer.blob()) };
  }
  image.src = picture.url;
}

async function refresh() {
  if (document.querySelector("form.signin") && !hasToken()) return;
  let fresh = false;
  try {
    const answer = await get("/" + location.search);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = page.querySelector("main");
    if (answer.status === 401) dropToken();
    if (main) {
      merge(main);
      document.title = page.title;
      await drawPicture(document);
      document.dispatchEvent(new Event("refreshed"));
      fresh = true;
    }
  } catch { /* shown as stale until the daemon answers again */ }
  document.documentElement.classList.toggle("stale", !fresh);
}

document.addEventListener("submit", (event) => {
  if (!event.target.matches("form.signin")) return;
  event.preventDefault();
  keepToken(new FormData(event.target).get("token").trim());
  refresh();
});

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a");
  if (!link) return;
  if (link.closest(".switch")) {
    event.preventDefault();
    window.history.replaceState(null, "", link.href);
    refresh();
    return;
  }
  // Links are followed without the token, too.
  if (!link.closest("footer") || !hasToken()) return;
  event.preventDefault();
  const answer = await get(link.getAttribute("href"));
  location.assign(URL.createObjectURL(await answer.blob()));
});

async function loop() {
  if (!document.hidden) await refresh();
  setTimeout(loop, everyMs);
}

if (hasToken()) refresh();
setTimeout(loop, everyMs);
