// The retirement of a block of the list.
import { get, problemOf } from "./access.js";

let section = null; // of the page
let kept = ""; // the token that was typed in last, until the page is left

const time = (text) => text.replace("T", " ").replace(/\.\d+/, "").replace("Z", "");

function ask(row) {
  const dialog = section.querySelector("dialog");
  const form = dialog.querySelector("form");
  form.reset();
  form.dataset.id = row.dataset.id;
  if (form.elements.token) form.elements.token.value = kept;
  dialog.querySelector(".id").textContent = row.dataset.id;
  dialog.querySelector(".rows").textContent = row.dataset.rows;
  dialog.querySelector(".problem").textContent = "";
  dialog.querySelector(".asks").hidden = false;
  dialog.querySelector(".receipt").hidden = true;
  dialog.showModal();
}

async function retire(form) {
  const dialog = form.closest("dialog");
  const problem = dialog.querySelector(".problem");
  const button = form.querySelector(".danger");
  const token = form.elements.token?.value.trim();
  button.disabled = true;
  problem.textContent = "";
  try {
    const path = `/v1/blocks/${encodeURIComponent(form.dataset.id)}`;
    const answer = await get(path, { method: "DELETE", signal: AbortSignal.timeout(60000), ...(token ? { token } : {}) });
    problem.textContent = await problemOf(answer);
    if (!answer.ok) return;
    kept = token;
    const receipt = await answer.json();
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
  if (!section?.dataset.retires) return;
  for (const cell of section.querySelectorAll("td.retire")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Retire…";
    button.addEventListener("click", () => ask(cell.closest("tr")));
    cell.append(button);
  }
  const dialog = section.querySelector("dialog");
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    retire(event.target);
  });
  for (const button of dialog.querySelectorAll(".close")) button.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    if (!dialog.querySelector(".receipt").hidden) document.dispatchEvent(new CustomEvent("reload", { detail: "blocks" }));
  });
}

document.addEventListener("refreshed", attach);
attach();
