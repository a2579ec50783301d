"use strict";
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

function draw(host) {
  const { figure, table } = data.charts[host.id];
  host.figure = figure;
  const spec = data.tables[table];
  const traces = figure.data.map((trace) => {
    if (!spec || !trace.customdata) return trace;
    const text = trace.customdata.map((at) => described(spec, at));
    return { ...trace, text, hovertemplate: "%{text}<extra></extra>" };
  });
  Plotly.newPlot(host, traces, dressed(figure.layout), QUIET);
  if (!spec) return;
  host.on("plotly_click", ({ points }) => {
    const at = points[0].customdata;
    const place = spec.columns.findIndex((column) => column.kind === "place");
    tables[table].find(spec.columns[place].words[spec.rows[at][place]][0]);
    document.getElementById(table).scrollIntoView({ block: "nearest" });
  });
}

// The table has more than one measure of a chart's points.
const MEASURES = {
  floors: { column: "floors", title: "error, floors" },
  limit: { column: "of limit", title: "error, share of its limit" },
};
const LEAST = 0.001;

function measure(host, name) {
  const { figure, table } = data.charts[host.id];
  const { layout } = figure;
  const spec = data.tables[table];
  const at = spec.columns.findIndex((column) => column.title === MEASURES[name].column);
  const own = (trace) => trace.customdata.map((row) => Math.max(LEAST, number(spec.rows[row][at])));
  const y = figure.data.map((trace) => (name === "floors" ? trace.y : own(trace)));
  const top = Math.max(1, ...y.flat().filter(Number.isFinite));
  const drawn = y.map((values) => values.map((value) => (Number.isFinite(value) ? value : 10 * top)));
  const limit = { type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { dash: "dot", width: 1.5, color: "#d64545" } };
  Plotly.update(host, { y: drawn }, {
    shapes: name === "floors" ? layout.shapes || [] : [limit],
    annotations: name === "floors" ? layout.annotations || [] : [],
    "yaxis.title.text": MEASURES[name].title,
    "yaxis.autorange": true,
  });
}

for (const choice of document.querySelectorAll("select[data-chart]"))
  choice.addEventListener("change", () => measure(document.getElementById(choice.dataset.chart), choice.value));

const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    draw(target);
  }
}, { rootMargin: "300px" });

for (const host of document.querySelectorAll(".chart")) seen.observe(host);

dark.addEventListener("change", () => {
  for (const host of document.querySelectorAll(".chart.js-plotly-plot"))
    Plotly.relayout(host, dressed(host.figure.layout));
});

function open() {
  const target = document.getElementById(location.hash.slice(1));
  if (target?.matches("details")) target.open = true;
}

addEventListener("hashchange", open);
open();
performance.mark("usable");
