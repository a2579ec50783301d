// Draws each chart when it comes into view, in the colours of the page.

const dark = matchMedia("(prefers-color-scheme: dark)");
const QUIET = { displayModeBar: false, responsive: true };

function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  const axis = { gridcolor: of("line"), linecolor: of("line"), zerolinecolor: of("line") };
  return {
    font: { color: of("text"), family: getComputedStyle(document.body).fontFamily, size: 12 },
    hoverlabel: { bgcolor: of("panel"), bordercolor: of("line"), font: { color: of("text") } },
    xaxis: axis,
    yaxis: axis,
  };
}

function dressed(layout) {
  const page = colours();
  const axes = { xaxis: { ...layout.xaxis, ...page.xaxis }, yaxis: { ...layout.yaxis, ...page.yaxis } };
  return { ...layout, ...page, hoverlabel: { ...layout.hoverlabel, ...page.hoverlabel }, ...axes };
}

function described(spec, at) {
  const place = spec.columns.findIndex((column) => column.kind === "place");
  const safe = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  const [module, ...about] = spec.columns[place].words[spec.rows[at][place]].map(safe);
  const rest = spec.columns.flatMap((column, i) =>
    i === place || column.kind === "mark" ? [] : [`${column.title} ${safe(shown(column, spec.rows[at][i]))}`]);
  const lines = [`<b>${module}</b>`, about.filter(Boolean).join(" · "), rest.slice(0, 4).join(" · "), rest.slice(4).join(" · ")];
  return lines.filter(Boolean).join("<br>");
}

let library;
function loaded() {
  library ??= unpacked("plotly").then((text) => document.head.append(made("script", { textContent: text })));
  return library;
}

// The table has more than one measure of a chart's points.
const MEASURES = {
  limit: { column: "of limit", title: "error, share of its limit", least: 0.001 },
  floors: { column: "floors", title: "error, floors", least: 0.1 },
};

function measured(host) {
  const { figure, table } = data.charts[host.id];
  const spec = data.tables[table];
  if (!spec) return figure;
  const name = document.querySelector(`select[data-chart="${host.id}"]`).value;
  const { column, title, least } = MEASURES[name];
  const at = spec.columns.findIndex((one) => one.title === column);
  const ys = figure.data.map(({ customdata, meta }) =>
    customdata
      ? customdata.map((row) => Math.max(least, number(spec.rows[row][at])))
      : meta.limits.map((limit) => (name === "floors" ? limit || null : null)));
  const top = 10 * ys.flat().filter(Number.isFinite).reduce((a, b) => Math.max(a, b), 1);
  const data_ = figure.data.map((trace, i) => ({
    ...trace,
    y: ys[i].map((y) => (y === Infinity ? top : y)),
    ...(trace.customdata && {
      text: trace.customdata.map((row) => described(spec, row)),
      hovertemplate: "%{text}<extra></extra>",
    }),
  }));
  const share = name === "limit";
  const layout = {
    ...figure.layout,
    shapes: share ? figure.layout.shapes : [],
    annotations: share ? figure.layout.annotations : [],
    yaxis: { ...figure.layout.yaxis, title: { text: title }, tickformat: share ? "~p" : undefined },
  };
  return { data: data_, layout };
}

async function draw(host) {
  await loaded();
  const { data: traces, layout } = measured(host);
  host.layoutOf = layout;
  const first = !host.on;
  await Plotly.react(host, traces, dressed(layout), QUIET);
  const { table } = data.charts[host.id];
  const spec = data.tables[table];
  if (!spec || !first) return;
  host.on("plotly_click", ({ points }) => {
    const at = points[0].customdata;
    if (at === undefined) return;
    const place = spec.columns.findIndex((column) => column.kind === "place");
    tables[table].find(spec.columns[place].words[spec.rows[at][place]][0]);
    document.getElementById(table).scrollIntoView({ block: "nearest" });
  });
}

for (const choice of document.querySelectorAll("select[data-chart]"))
  choice.addEventListener("change", () => draw(document.getElementById(choice.dataset.chart)));

const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    draw(target);
  }
}, { rootMargin: "300px" });

for (const host of document.querySelectorAll(".chart")) seen.observe(host);

function dressAgain(size = {}) {
  for (const host of document.querySelectorAll(".chart.js-plotly-plot"))
    Plotly.relayout(host, { ...dressed(host.layoutOf), ...size });
}

dark.addEventListener("change", () => dressAgain());

// Paper gets light colours, charts of its width, and the folded parts that matter.
const PAPER_PX = 680;
let opened = [];
function print(on) {
  document.documentElement.classList.toggle("paper", on);
  if (on) opened = [...document.querySelectorAll("header details, #cases, #environment")].filter((part) => !part.open);
  for (const part of opened) {
    part.open = on;
    fill(part);
  }
  for (const table of Object.values(tables)) table.fill();
  dressAgain(on ? { width: PAPER_PX } : { width: null, autosize: true });
}

addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));

function open() {
  const target = document.getElementById(location.hash.slice(1));
  if (target?.matches("details")) target.open = true;
}

addEventListener("hashchange", open);
open();
performance.mark("usable");
