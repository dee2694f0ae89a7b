// A form that classifies rows.
import { get, problemOf } from "./access.js";

const shownRows = 50;
const shownClasses = 10;

// What the values are, by the rule that decides labels.
const quantities = { value: "value x′w − γ", probability: "log odds", cost: "value by cost" };

const percent = (x) => `${(100 * x).toFixed(1)} %`;
const raised = (n) => String(n).replace(/[-0-9]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));

// number writes four digits, as the server does. Below a share of the scale of its neighbours it
// is what rounding has left of 0.
function number(x, scale = 0) {
  if (x === 0 || Math.abs(x) < 1e-12 * scale) return "0";
  const size = Math.abs(x);
  if (size >= 1e-4 && size < 1e7) return String(+x.toPrecision(size >= 1e4 ? 7 : 4)).replace("-", "−");
  const [digits, exponent] = x.toExponential(3).split("e");
  return `${String(+digits).replace("-", "−")}·10${raised(+exponent)}`;
}

const largest = (values) => Math.max(...values.map(Math.abs));

function name(text) {
  const bdi = document.createElement("bdi");
  bdi.className = "name";
  bdi.title = text;
  const letters = [...text];
  bdi.textContent = letters.length > 40 ? `${letters.slice(0, 20).join("")}…${letters.slice(-19).join("")}` : text;
  return bdi;
}

// table makes rows of cells; a number is written to the right, and a share has a bar.
function table(head, rows) {
  const t = document.createElement("table");
  const header = t.createTHead().insertRow();
  for (const text of head) {
    const th = document.createElement("th");
    th.textContent = text;
    if (text !== head[0]) th.className = "n";
    header.append(th);
  }
  const body = t.createTBody();
  for (const cells of rows) {
    const row = body.insertRow();
    cells.forEach((content, i) => {
      const cell = row.insertCell();
      if (i > 0) cell.className = "n";
      cell.append(content);
    });
  }
  return t;
}

// firsts are the indices of the largest values, in descending order.
const firsts = (values, most) => values.map((_, i) => i).sort((a, b) => values[b] - values[a]).slice(0, most);

function heading(...content) {
  const p = document.createElement("p");
  p.className = "above";
  p.append(...content);
  return p;
}

// one shows the answer for a single row.
function one(answer) {
  const parts = [];
  const label = document.createElement("b");
  label.append(name(String(answer.labels[0])));
  parts.push(heading("Class ", label));
  const p = answer.probabilities?.[0];
  if (p) parts.push(table(["class", "probability"], firsts(p, shownClasses).map((i) => [name(answer.classes[i]), percent(p[i])])));
  const values = answer.values[0];
  const planes = firsts(values, shownClasses);
  parts.push(table(["plane of class", quantities[answer.decision] ?? "value"], planes.map((i) => [name(answer.planes[i]), number(values[i], largest(values))])));
  const contributions = answer.contributions?.rows?.[0];
  if (contributions) {
    const top = Object.entries(contributions[planes[0]]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    parts.push(table(["feature", "share of x′w − γ of the first plane, counted from the mean row"], top.map(([feature, x]) => [name(feature), number(x, Math.abs(top[0][1]))])));
  }
  return parts;
}

// many shows labels of several rows.
function many(answer) {
  const rows = answer.labels.slice(0, shownRows).map((label, i) => {
    const p = answer.probabilities?.[i];
    const of = p?.[answer.classes.indexOf(String(label))];
    return [String(i + 1), name(String(label)), of === undefined ? "" : percent(of)];
  });
  const parts = [table(["row", "class", "its probability"], rows)];
  if (answer.labels.length > shownRows) parts.push(heading(`and ${answer.labels.length - shownRows} more rows`));
  return parts;
}

async function predict(form) {
  const out = form.parentElement.querySelector(".answer");
  const problem = form.querySelector(".problem");
  const inputs = [...form.querySelectorAll("input")];
  const text = inputs.length > 0 ? JSON.stringify({ features: inputs.map((i) => (i.value === "" ? null : i.type === "number" ? Number(i.value) : i.value)) }) : form.elements.rows.value.trim();
  const type = /^[[{]/.test(text) ? "application/json" : "text/csv";
  problem.textContent = "";
  try {
    const query = form.dataset.linear ? "?contributions=true&top=5" : "";
    const answer = await get(`/v1/predict${query}`, { method: "POST", body: text, headers: { "Content-Type": type } });
    problem.textContent = await problemOf(answer);
    if (!answer.ok) return out.replaceChildren();
    const body = await answer.json();
    out.replaceChildren(...(body.labels.length === 1 ? one(body) : many(body)));
  } catch (error) {
    problem.textContent = String(error);
    out.replaceChildren();
  }
}

// The mean row, for who has no other.
document.addEventListener("click", (event) => {
  if (!event.target.matches("form.predict .fill")) return;
  for (const field of event.target.form.querySelectorAll("[data-mean]")) field.value = field.dataset.mean;
});

document.addEventListener("submit", (event) => {
  if (!event.target.matches("form.predict")) return;
  event.preventDefault();
  predict(event.target);
});
