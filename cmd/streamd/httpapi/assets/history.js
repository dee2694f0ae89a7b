// Draws the course of correctness, rows a second, lag and memory.
import { get } from "./access.js";

const refreshMs = { minutes: 5000, hours: 60000, days: 60000 };

const grouped = (x) => Math.round(x).toLocaleString("en").replaceAll(",", "\u202f");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const percent = (x) => `${(100 * x).toFixed(2)} %`;
const mebibytes = (x) => `${grouped(x)} MiB`;

// The figures by the names of their elements: each series has a label, a color of the style
// sheet and the values of an answer.
const figures = {
  correctness: {
    series: [["right", "--plus", (h) => h.correctness], ["balanced", "--minus", (h) => h.balanced_correctness]],
    value: percent, tick: (x) => `${+(100 * x).toFixed(2)} %`,
    range: (low, high) => { const room = Math.max((high - low) / 10, 0.002); return [Math.max(0, low - room), Math.min(1, high + room)]; },
  },
  rows: { series: [["rows/s", "--plus", (h) => h.rows_per_second]], value: grouped, tick: (x) => compact.format(x) },
  lag: { series: [["records", "--plus", (h) => h.lag]], value: grouped, tick: (x) => compact.format(x) },
  memory: { series: [["in use", "--plus", (h) => h.memory.map((x) => x === null ? null : x / 2 ** 20)]], value: mebibytes, tick: (x) => compact.format(x) },
};

let section = null; // of the page
let span = "minutes";
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
      { label: "at", value: (u, t) => t === null ? "–" : `${clock(t, 86400)} ${clock(t, 1)}` },
      ...figure.series.map(([label, name]) => ({
        label, stroke: color(name), width: 1.6, value: (u, x) => x === null ? "–" : figure.value(x),
      })),
    ],
  };
}

const values = (figure) => [course.times, ...figure.series.map(([, , of]) => of(course))];

function build() {
  for (const { plot } of plots) plot.destroy();
  plots = [];
  for (const box of section.querySelectorAll("figure[data-course]")) {
    const figure = figures[box.dataset.course];
    const plot = new uPlot(options(figure, box.clientWidth), values(figure), box);
    plots.push({ plot, box, figure });
  }
}

function draw() {
  const none = course.times.length === 0;
  section.querySelector(".empty").hidden = !none;
  section.querySelector(".courses").hidden = none;
  section.querySelector(".limit").textContent = mebibytes(course.memory_limit / 2 ** 20);
  for (const button of section.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.span === span));
  if (none) return;
  if (plots.length === 0) build();
  else for (const { plot, figure } of plots) plot.setData(values(figure));
}

async function update() {
  const asked = span;
  fetchedAt = Date.now();
  try {
    const answer = await get(`/v1/history?span=${asked}`);
    if (!answer.ok) return;
    const body = await answer.json();
    if (asked !== span || !section) return; // another one was asked for meanwhile
    course = body;
    draw();
  } catch { /* the page is shown as stale until the daemon answers again */ } finally {
    section?.setAttribute("aria-busy", "false");
  }
}

const sizes = new ResizeObserver(() => {
  for (const { plot, box } of plots) {
    if (box.clientWidth > 0 && plot.width !== box.clientWidth) plot.setSize({ width: box.clientWidth, height: plot.height });
  }
});

function attach() {
  const now = document.getElementById("history");
  if (now !== section) {
    section = now;
    plots = [];
    sizes.disconnect();
    if (!section) return;
    sizes.observe(section);
    section.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-span]");
      if (!button || button.dataset.span === span) return;
      span = button.dataset.span;
      update();
    });
    fetchedAt = 0;
  }
  if (section && Date.now() - fetchedAt >= refreshMs[span]) update();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (course && plots.length > 0) build(); });
document.addEventListener("refreshed", attach);
attach();
