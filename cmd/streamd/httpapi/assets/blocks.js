// The live blocks page by page, and the retirement of one of them.
import { get, problemOf } from "./access.js";

const pageSize = 20;

let section = null; // of the page
let starts = [""]; // the parameter after of the pages up to the one that is shown
let next = ""; // of the page after it; "": it is the last one

const grouped = (x) => x.toLocaleString("en").replaceAll(",", "\u202f");
const time = (text) => text.replace("T", " ").replace(/\.\d+/, "").replace("Z", "");

// keyOf is the text of a key, which comes in base64.
const keyOf = (block) => new TextDecoder().decode(Uint8Array.from(atob(block.key), (c) => c.charCodeAt(0)));

function cell(row, content, className) {
  const td = row.insertCell();
  td.className = className ?? "";
  td.append(content);
  return td;
}

function name(text) {
  const bdi = document.createElement("bdi");
  bdi.className = "name";
  bdi.title = bdi.textContent = text;
  return bdi;
}

function show(blocks) {
  const body = section.querySelector("tbody");
  body.replaceChildren();
  for (const block of blocks) {
    const row = body.insertRow();
    cell(row, name(block.id));
    if (section.dataset.keys) cell(row, block.key === undefined ? "" : name(keyOf(block)));
    cell(row, time(block.time), "n");
    cell(row, grouped(block.rows), "n");
    cell(row, grouped(block.partition), "n");
    cell(row, grouped(block.offset), "n");
    if (!section.dataset.retires) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Retire…";
    button.addEventListener("click", () => ask(block));
    cell(row, button, "n");
  }
  if (blocks.length === 0) cell(body.insertRow(), "There are no live blocks here.").colSpan = 7;
  section.querySelector('[data-go="first"]').disabled = section.querySelector('[data-go="back"]').disabled = starts.length === 1;
  section.querySelector('[data-go="next"]').disabled = next === "";
}

// load fetches the last one of the pages in starts.
async function load() {
  const of = section;
  let problem = "";
  try {
    const answer = await get(`/v1/blocks?limit=${pageSize}&after=${encodeURIComponent(starts[starts.length - 1])}`);
    if (of !== section) return;
    problem = await problemOf(answer);
    if (problem === "") {
      const page = await answer.json();
      next = page.next ?? "";
      show(page.blocks);
    }
  } catch (error) {
    problem = String(error);
  } finally {
    of.setAttribute("aria-busy", "false");
  }
  of.querySelector(".at").textContent = problem || `page ${starts.length}, as of ${time(new Date().toISOString())} UTC`;
}

function ask(block) {
  const dialog = section.querySelector("dialog");
  const form = dialog.querySelector("form");
  form.reset();
  form.dataset.id = block.id;
  dialog.querySelector(".id").textContent = block.id;
  dialog.querySelector(".rows").textContent = grouped(block.rows);
  dialog.querySelector(".problem").textContent = "";
  dialog.querySelector(".asks").hidden = false;
  dialog.querySelector(".receipt").hidden = true;
  dialog.showModal();
}

async function retire(form) {
  const dialog = form.closest("dialog");
  const problem = dialog.querySelector(".problem");
  const button = form.querySelector(".danger");
  const token = form.elements.token.value.trim();
  button.disabled = true;
  problem.textContent = "";
  try {
    const path = `/v1/blocks/${encodeURIComponent(form.dataset.id)}`;
    const answer = await get(path, { method: "DELETE", signal: AbortSignal.timeout(60000), ...(token ? { token } : {}) });
    problem.textContent = await problemOf(answer);
    if (!answer.ok) return;
    const receipt = await answer.json();
    form.elements.token.value = "";
    dialog.querySelector(".at-time").textContent = time(receipt.retired_at);
    dialog.querySelector(".before").textContent = receipt.state_digest_before;
    dialog.querySelector(".after").textContent = receipt.state_digest_after;
    dialog.querySelector(".remains").replaceChildren(...receipt.remains.map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      return item;
    }));
    dialog.querySelector(".asks").hidden = true;
    dialog.querySelector(".receipt").hidden = false;
    await load();
  } catch (error) {
    problem.textContent = `It is not known whether the block is retired: ${error}`;
  } finally {
    button.disabled = false;
  }
}

function attach() {
  const now = document.getElementById("blocks");
  if (now === section) return;
  section = now;
  if (!section) return;
  starts = [""];
  next = "";
  section.querySelector(".pager").addEventListener("click", (event) => {
    const go = event.target.dataset.go;
    if (go === "first") starts = [""];
    else if (go === "back") starts.pop();
    else if (go === "next") starts.push(next);
    else if (go !== "reload") return;
    load();
  });
  section.querySelector("dialog form").addEventListener("submit", (event) => {
    event.preventDefault();
    retire(event.target);
  });
  for (const button of section.querySelectorAll("dialog .close")) {
    button.addEventListener("click", () => button.closest("dialog").close());
  }
  load();
}

document.addEventListener("refreshed", attach);
attach();
