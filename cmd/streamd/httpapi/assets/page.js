// The server renders the page. This module fetches it again and swaps the sections that
// have changed. A section with data-keep stays until the value of data-keep changes. Links
// between views change the address and fetch the page, which also works with a token.
import { get, hasToken, keepToken, dropToken } from "./access.js";

const everyMs = 2000;
const narrow = matchMedia("(max-width: 620px)");
let picture = { src: "", url: "" }; // of the regions, fetched with the token

// partsOf are what is swapped: the children of main, and what lies around main.
const partsOf = (page) => [...page.querySelectorAll("body > header, body > nav, body > footer, main > *")];

// sent has the parts by id as the server sent them, before scripts changed them.
let sent = new Map();
const remember = () => { sent = new Map(partsOf(document).map((part) => [part.id, part.outerHTML])); };
remember();

const signsIn = (page) => page.querySelector("form.signin") !== null;

// changeLive changes a live region in place, so that a screen reader says what is new. A line
// of which only numbers have changed is no news.
function changeLive(old, next) {
  old.className = next.className;
  const plain = (text) => text.replace(/\d+/g, "0");
  const quiet = plain(old.textContent) === plain(next.textContent);
  old.setAttribute("aria-live", quiet ? "off" : "polite");
  const lines = new Map([...old.querySelectorAll("[data-key]")].map((line) => [line.dataset.key, line]));
  for (const line of next.querySelectorAll("[data-key]")) {
    const same = lines.get(line.dataset.key);
    if (!same || plain(same.querySelector(".what").textContent) !== plain(line.querySelector(".what").textContent)) continue;
    if (same.innerHTML !== line.innerHTML) same.innerHTML = line.innerHTML;
    same.className = line.className;
    line.replaceWith(same);
  }
  old.replaceChildren(...next.childNodes);
}

// focusIn finds the element of a part that takes the place of one with the focus.
function focusIn(part, was) {
  if (was.id) return document.getElementById(was.id);
  if (was.matches("a[href]")) return [...part.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === was.getAttribute("href"));
  return null;
}

// merge puts the parts of next into the page. Those that are the same stay, with what is
// selected, scrolled or typed in them.
function merge(next, anew) {
  if (signsIn(document) || signsIn(next)) {
    if (signsIn(document) && signsIn(next) && document.querySelector("main").outerHTML === next.querySelector("main").outerHTML) return;
    document.body.replaceChildren(...document.adoptNode(next.body).childNodes);
    remember();
    restoreScroll();
    return;
  }
  const main = document.querySelector("main");
  const moved = main.dataset.view !== next.querySelector("main").dataset.view;
  main.dataset.view = next.querySelector("main").dataset.view;
  const wanted = [];
  for (const part of partsOf(next)) {
    const html = part.outerHTML;
    const old = document.getElementById(part.id);
    const inMain = part.parentElement.tagName === "MAIN";
    const keeps = old && part.dataset.keep && part.dataset.keep === old.dataset.keep && part.id !== anew;
    if (keeps || old && sent.get(part.id) === html && part.id !== anew) {
      if (inMain) wanted.push(old);
      continue;
    }
    if (old && part.hasAttribute("aria-live") && !moved) {
      changeLive(old, document.adoptNode(part));
      wanted.push(old);
    } else {
      const node = document.adoptNode(part);
      if (old) {
        const focused = old.contains(document.activeElement) ? document.activeElement : null;
        const scrolled = [...old.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
        old.replaceWith(node);
        node.querySelectorAll(".scroll").forEach((box, i) => { box.scrollLeft = scrolled[i] ?? 0; });
        if (focused) focusIn(node, focused)?.focus({ preventScroll: true });
      }
      if (inMain) wanted.push(node);
    }
    sent.set(part.id, html);
  }
  for (const section of [...main.children]) if (!wanted.includes(section)) section.remove();
  wanted.forEach((section, i) => {
    if (main.children[i] !== section) main.insertBefore(section, main.children[i] ?? null);
  });
}

// The browser fetches an image without the token, so the script does.
async function drawPicture() {
  const image = document.querySelector("img.regions");
  if (!image || !hasToken()) return;
  const source = image.parentElement.querySelector("source");
  image.dataset.wide ??= image.getAttribute("src");
  image.dataset.narrow ??= source?.getAttribute("srcset");
  const src = narrow.matches ? image.dataset.narrow : image.dataset.wide;
  if (picture.src !== src) {
    const answer = await get(src);
    if (!answer.ok) return;
    URL.revokeObjectURL(picture.url);
    picture = { src, url: URL.createObjectURL(await answer.blob()) };
  }
  source?.remove();
  if (image.src !== picture.url) image.src = picture.url;
}

// A page that asks for a token is short, so the place on the page is kept for the one after it.
function restoreScroll() {
  const kept = sessionStorage.getItem("streamd.place")?.split(" ");
  if (kept?.[0] === location.search) scrollTo(0, Number(kept[1]));
}
addEventListener("pagehide", () => {
  if (!signsIn(document)) sessionStorage.setItem("streamd.place", `${location.search} ${scrollY}`);
});

let fetches = 0;

async function refresh({ anew } = {}) {
  if (signsIn(document) && !hasToken()) return;
  const fetchOf = ++fetches;
  const at = location.search;
  let fresh = false;
  try {
    const answer = await get("/" + at);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (fetchOf !== fetches || at !== location.search) return; // another one is under way
    if (answer.status === 401) dropToken();
    if (page.querySelector("main")) {
      merge(page, anew);
      document.title = page.title;
      await drawPicture();
      document.dispatchEvent(new Event("refreshed"));
      fresh = true;
    }
  } catch { /* shown as stale until the daemon answers again */ }
  document.documentElement.classList.toggle("stale", !fresh);
}

// show goes to another view, or to another part of this one.
async function show(href, anew) {
  const from = document.querySelector("main").dataset.view;
  const to = new URL(href, location.href);
  if (to.href !== location.href) history.pushState(null, "", to);
  await refresh({ anew });
  if (to.hash) document.querySelector(to.hash)?.scrollIntoView({ block: "nearest" });
  else if (document.querySelector("main").dataset.view !== from) scrollTo(0, 0);
}
addEventListener("popstate", () => refresh());
document.addEventListener("reload", (event) => refresh({ anew: event.detail }));

document.addEventListener("submit", (event) => {
  if (event.target.matches("main form[method=get]")) {
    event.preventDefault();
    show(`/?${new URLSearchParams(new FormData(event.target))}`);
    return;
  }
  if (!event.target.matches("form.signin")) return;
  event.preventDefault();
  keepToken(new FormData(event.target).get("token").trim());
  refresh();
});

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[href]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const href = link.getAttribute("href");
  if (href === "/" || href.startsWith("/?")) {
    event.preventDefault();
    show(href, "reload" in link.dataset ? link.closest("section").id : undefined);
    return;
  }
  // Links are followed without the token, too.
  if (!link.closest("footer") || !hasToken()) return;
  event.preventDefault();
  const answer = await get(href);
  location.assign(URL.createObjectURL(await answer.blob()));
});

async function loop() {
  if (!document.hidden) await refresh();
  setTimeout(loop, everyMs);
}

if (hasToken()) refresh();
setTimeout(loop, everyMs);
