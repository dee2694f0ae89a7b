// The form that says that problems have been seen.
import { get, problemOf } from "./access.js";

let section = null; // of the page

async function see(form) {
  const problem = form.querySelector(".problem");
  const button = form.querySelector("button");
  const token = form.elements.token?.value.trim();
  button.disabled = true;
  problem.textContent = "";
  try {
    const path = `/v1/status/seen?until=${encodeURIComponent(form.dataset.until)}`;
    const answer = await get(path, { method: "POST", ...(token ? { token } : {}) });
    problem.textContent = await problemOf(answer);
    if (answer.ok) document.dispatchEvent(new CustomEvent("reload", { detail: "seen" }));
  } catch (error) {
    problem.textContent = `It could not be said: ${error}`;
  } finally {
    button.disabled = false;
  }
}

function attach() {
  const now = document.getElementById("seen");
  if (now === section) return;
  section = now;
  if (!section) return;
  section.hidden = false;
  section.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    see(event.target);
  });
}

document.addEventListener("refreshed", attach);
attach();
