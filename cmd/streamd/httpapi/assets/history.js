// Draws the courses of correctness, of both kinds, rows a second, lag and memory in the place of the server's
// pictures, with values under the pointer.
import { get } from "./access.js";

const refreshMs = { minutes: 5000, hours: 60000, days: 60000 };

const grouped = (x) => Math.round(x).toLocaleString("en").replaceAll(",", "\u202f");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const percent = (x) => `${(100 * x).toFixed(2)} %`;
const mebibytes = (x) => `${grouped(x)} MiB`;

// share shows parts of 1.
const share = {
  value: percent, tick: (x) => `${+(100 * x).toFixed(2)} %`,
  range: (low, high) => { const room = Math.max((high - low) / 10, 0.002); return [Math.max(0, low - room), Math.min(1, high + room)]; },
};

// The figures by the names of their elements: each series has a label, a color of the style
// sheet, the values of an answer, and the dashes of a baseline. The series of a figure are of the same rows, which its caption
// names.
const figures = {
  correctness: {
    series: [["right", "--plus", (h) => h.correctness], ["largest class", "--soft", (h) => h.largest_class, [6, 3]], ["last label", "--soft", (h) => h.last_label, [1, 3]]],
    ...share,
  },
  balanced: { series: [["balanced", "--plus", (h) => h.balanced_correctness]], ...share },
  rows: { series: [["rows/s", "--plus", (h) => h.rows_per_second]], value: grouped, tick: (x) => compact.format(x) },
  lag: { series: [["records", "--plus", (h) => h.lag]], value: grouped, tick: (x) => compact.format(x) },
  memory: { series: [["in use", "--plus", (h) => h.memory.map((x) => x === null ? null : x / 2 ** 20)]], value: mebibytes, tick: (x) => compact.format(x) },
};

let section = null; // of the page
let course = null; // the last answer
let fetchedAt = 0;
let plots = []; // {plot, box}

const two = (n) => String(n).padStart(2, "0");
const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

// The page has all times in UTC.
function clock(seconds, step) {
  const t = new Date(1000 * seconds);
  const day = `${t.getUTCDate()} ${months[t.getUTCMonth()]}`;
  const minute = `${two(t.getUTCHours())}:${two(t.getUTCMinutes())}`;
  if (step >= 86400) return day;
  if (step >= 60) return minute === "00:00" ? day : minute;
  return `${minute}:${two(t.getUTCSeconds())}`;
}

function options(figure, width) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: color("--soft"), font: "11px system-ui, sans-serif", grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1, size: 4 } };
  return {
    width, height: 170, tzDate: (t) => uPlot.tzDate(new Date(1000 * t), "Etc/UTC"),
    padding: [8, 30, 0, 0], // the last time needs room
    cursor: { y: false, drag: { x: false, y: false } },
    scales: {
      y: { range: (u, low, high) => low === null ? [0, 1] : figure.range ? figure.range(low, high) : [0, Math.max(1, 1.08 * high)] },
    },
    axes: [
      { ...axis, size: 26, space: 64, values: (u, splits, i, space, step) => splits.map((s) => clock(s, step)) },
      { ...axis, size: 56, space: 28, values: (u, splits) => splits.map((x) => x === null ? "" : figure.tick(x)) },
    ],
    series: [
      { label: "at", value: (u, t, of, i) => `${clock(course.times[i ?? latest()], 86400)} ${clock(course.times[i ?? latest()], 1)}` },
      ...figure.series.map(([label, name, values, dash]) => ({
        label, stroke: color(name), width: dash ? 1 : 1.6, dash, points: { size: 5, fill: color(name), filter: alone },
        value: (u, x, of, i) => { const y = values(course)[i ?? latest()]; return y === null ? "–" : figure.value(y); },
      })),
    ],
  };
}

// latest is the interval whose values stand below the charts while the pointer is elsewhere: the
// last one in which something was judged, or else the last one.
const latest = () => {
  const judged = course.correctness.findLastIndex((x) => x !== null);
  return judged < 0 ? course.times.length - 1 : judged;
};

// alone are the values without a neighbour. A line does not show them, so they are drawn as points.
function alone(u, series) {
  const y = u.data[series];
  return [...y.keys()].filter((i) => y[i] !== null && (y[i - 1] ?? null) === null && (y[i + 1] ?? null) === null);
}

const values = (figure) => [course.times, ...figure.series.map(([, , of]) => of(course))];

// measured are the places whose figures have a value. The others keep the server's words.
const measured = () => [...section.querySelectorAll("figure[data-course]")].filter((box) =>
  figures[box.dataset.course].series.some(([, , of]) => of(course).some((y) => y !== null)));

function build() {
  for (const { plot } of plots) plot.destroy();
  plots = [];
  for (const box of measured()) {
    const figure = figures[box.dataset.course];
    box.querySelector("svg.course, .empty")?.remove();
    const plot = new uPlot(options(figure, box.clientWidth), values(figure), box);
    plots.push({ plot, box, figure });
  }
}

function draw() {
  if (course.times.length === 0) return;
  if (plots.length !== measured().length) build();
  else for (const { plot, figure } of plots) plot.setData(values(figure));
}

async function update() {
  const of = section;
  const span = of.dataset.span;
  fetchedAt = Date.now();
  try {
    const answer = await get(`/v1/history?span=${span}`);
    if (!answer.ok) return;
    const body = await answer.json();
    if (of !== section) return; // another one is shown meanwhile
    course = body;
    draw();
  } catch { /* the page is shown as stale until the daemon answers again */ }
}

const sizes = new ResizeObserver(() => {
  for (const { plot, box } of plots) {
    if (box.clientWidth > 0 && plot.width !== box.clientWidth) plot.setSize({ width: box.clientWidth, height: plot.height });
  }
});

function attach() {
  const now = document.getElementById("history");
  if (now !== section) {
    for (const { plot } of plots) plot.destroy();
    section = now;
    plots = [];
    sizes.disconnect();
    if (!section) return;
    sizes.observe(section);
    fetchedAt = 0;
  }
  if (section && Date.now() - fetchedAt >= refreshMs[section.dataset.span]) update();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (course && plots.length > 0) build(); });
document.addEventListener("refreshed", attach);
attach();
