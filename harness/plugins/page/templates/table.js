// Tables that can be sorted and filtered; ten rows are in the page at a time.

// The page holds its data and its library compressed.
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

const data = JSON.parse(await unpacked("data"));
const PER_PAGE = 10;
const MOST_ON_PAPER = 500; // a longer table prints its first rows and its length
const PASSED = ["within", "another", "gap"];
const NUMERIC = ["number", "sci", "decibels", "percent", "ssim"];
const tables = {};

function made(tag, about = {}, ...children) {
  const element = Object.assign(document.createElement(tag), about);
  element.append(...children);
  return element;
}

function number(cell) {
  if (cell === null) return -Infinity;
  if (cell === "nan") return Infinity;
  return cell === "inf" ? Infinity : cell === "-inf" ? -Infinity : cell;
}

function shown(column, cell) {
  if (column.words) cell = column.words[cell];
  if (cell === null || cell === "") return "–";
  if (column.kind === "place") return cell.filter(Boolean).join(" · ");
  if (!NUMERIC.includes(column.kind)) return cell;
  if (cell === "nan") return "not finite";
  if (typeof cell === "string") return cell === "inf" ? "∞" : "−∞";
  if (column.kind === "sci") return cell === 0 ? "0" : cell.toExponential(2);
  if (column.kind === "percent") return percent(cell);
  if (column.kind === "ssim") return cell.toFixed(4);
  if (column.kind === "decibels") return cell.toFixed(1);
  return Math.abs(cell) >= 1000
    ? Math.round(cell).toLocaleString("en")
    : String(Number(cell.toPrecision(3)));
}

// A share of a limit is in percent, a factor beyond it in times: they never look alike.
function percent(share) {
  if (share <= 1) return `${share >= 0.1 ? Math.round(100 * share) : (100 * share).toFixed(1)} %`;
  const [words, size] = share < 1e3 ? ["", 1] : share < 1e6 ? [" thousand", 1e3] : [" million", 1e6];
  if (share >= 1e9) return `${share.toPrecision(3)} ×`;
  return `${share < 10 ? share.toFixed(2) : Number((share / size).toPrecision(3))}${words} ×`;
}

// Whether choosing one of a column's words leaves several rows, and the list is short.
function repeated({ words }, rows) {
  return words && words.length > 1 && words.length < Math.min(60, rows.length);
}

function sign(word) {
  return PASSED.includes(word) ? "✓" : word === "unavailable" ? "–" : "✗";
}

function cellOf(column, cell) {
  const text = shown(column, cell);
  if (column.kind === "mark" || column.kind === "outcome") {
    const tone = { "✓": "good", "✗": "bad", "–": "quiet" }[sign(text)];
    const mark = made("span", { className: `mark ${tone}`, title: text }, sign(text));
    mark.setAttribute("aria-label", text);
    mark.setAttribute("role", "img");
    const words = column.kind === "outcome" && text !== "–" ? [` ${text}`] : [];
    return made("td", { className: column.minor ? "minor" : "" }, text === "–" ? text : mark, ...words);
  }
  if (column.kind === "place") {
    const [module, ...rest] = column.words[cell];
    const about = made("small", {}, rest.filter(Boolean).join(" · "));
    return made("td", { className: `place ${column.minor ? "minor" : ""}` }, made("code", {}, module), about);
  }
  const numeric = NUMERIC.includes(column.kind) ? "number" : String(text).length > 40 ? "long" : "";
  return made("td", { className: `${numeric} ${column.minor ? "minor" : ""}` }, text);
}

const onPaper = () => document.documentElement.classList.contains("paper");

class Table {
  constructor(host, spec) {
    Object.assign(this, { host, spec, search: "", picks: {}, wrong: false, page: 0 });
    this.sort = spec.sort;
    this.down = true;
    this.marks = spec.columns.findIndex((column) => column.kind === "mark");
    this.body = made("tbody");
    this.count = made("span");
    this.count.setAttribute("aria-live", "polite");
    host.append(this.tools(), made("div", { className: "scroll" }, this.table()), this.pager());
    this.show();
  }

  tools() {
    const { columns, caption, rows } = this.spec;
    const where = columns.some((column) => column.kind === "place");
    const placeholder = where ? "filter: module, operator, source …" : "filter";
    this.box = made("input", { type: "search", placeholder });
    this.box.setAttribute("aria-label", `Filter: ${caption}`);
    this.box.addEventListener("input", () => this.find(this.box.value));
    const tools = made("div", { className: "tools" }, this.box);
    columns.forEach((column, at) => {
      if (column.kind !== "text" || !repeated(column, rows)) return;
      const all = made("option", { value: "" }, `${column.title}: all`);
      const options = column.words.map((word, index) => made("option", { value: index }, word || "–"));
      const choice = made("select", {}, all, ...options);
      choice.setAttribute("aria-label", column.title);
      choice.addEventListener("change", () => this.set(() => (this.picks[at] = choice.value)));
      tools.append(choice);
    });
    if (this.marks >= 0 && columns[this.marks].words.some((word) => sign(word) === "✗")) {
      const tick = made("input", { type: "checkbox" });
      tick.addEventListener("change", () => this.set(() => (this.wrong = tick.checked)));
      tools.append(made("label", {}, tick, "only out of tolerance"));
    }
    return tools;
  }

  table() {
    const heads = this.spec.columns.map((column, at) => {
      const words = column.title || "✓";
      const button = made("button", { type: "button", title: column.hint }, words);
      if (!column.title) button.setAttribute("aria-label", column.hint);
      button.addEventListener("click", () => this.set(() => this.sortBy(at)));
      const numeric = NUMERIC.includes(column.kind) ? "number " : "";
      const head = made("th", { scope: "col", className: numeric + (column.minor ? "minor" : "") }, button);
      return head;
    });
    this.heads = heads;
    const caption = made("caption", {}, this.spec.caption);
    return made("table", {}, caption, made("thead", {}, made("tr", {}, ...heads)), this.body);
  }

  pager() {
    this.back = made("button", { type: "button" }, "‹ back");
    this.next = made("button", { type: "button" }, "next ›");
    this.back.addEventListener("click", () => { this.page -= 1; this.fill(); });
    this.next.addEventListener("click", () => { this.page += 1; this.fill(); });
    return made("div", { className: "pager" }, this.count, this.back, this.next);
  }

  find(text) {
    this.box.value = text;
    this.set(() => (this.search = text.trim().toLowerCase()));
  }

  set(change) {
    change();
    this.page = 0;
    this.show();
  }

  sortBy(at) {
    if (this.sort === at) this.down = !this.down;
    else Object.assign(this, { sort: at, down: NUMERIC.includes(this.spec.columns[at].kind) });
  }

  matching() {
    // A word is looked at once, however many rows say it.
    const hits = this.spec.columns.map((column) =>
      column.words && column.words.map((word) => String(word).toLowerCase().includes(this.search)));
    const wrong = this.marks >= 0 && this.spec.columns[this.marks].words.map((word) => sign(word) === "✗");
    return [...this.spec.rows.keys()].filter((at) => {
      const row = this.spec.rows[at];
      if (this.wrong && !wrong[row[this.marks]]) return false;
      for (const [column, pick] of Object.entries(this.picks))
        if (pick !== "" && row[column] !== Number(pick)) return false;
      return !this.search || hits.some((words, column) => words && words[row[column]]);
    });
  }

  show() {
    const rows = this.matching();
    if (this.sort !== null) {
      const { rows: all, columns } = this.spec;
      const column = columns[this.sort];
      const key = NUMERIC.includes(column.kind)
        ? (at) => number(all[at][this.sort])
        : (at) => shown(column, all[at][this.sort]);
      const keys = new Map(rows.map((at) => [at, key(at)]));
      const way = this.down ? -1 : 1;
      rows.sort((a, b) => {
        const [one, other] = [keys.get(a), keys.get(b)];
        return one === other ? a - b : one < other ? -way : way;
      });
    }
    this.rows = rows;
    this.fill();
  }

  fill() {
    const { columns, rows, unit } = this.spec;
    const whole = onPaper() && this.rows.length <= MOST_ON_PAPER;
    const first = whole ? 0 : this.page * PER_PAGE;
    const seen = this.rows.slice(first, whole ? undefined : first + PER_PAGE);
    this.body.replaceChildren(...seen.map((at) => {
      const wrong = this.marks >= 0 && sign(columns[this.marks].words[rows[at][this.marks]]) === "✗";
      return made("tr", { className: wrong ? "wrong" : "" }, ...rows[at].map((cell, i) => cellOf(columns[i], cell)));
    }));
    const total = this.rows.length.toLocaleString("en");
    this.count.textContent = seen.length
      ? `${(first + 1).toLocaleString("en")}–${(first + seen.length).toLocaleString("en")} of ${total}`
      : `no ${unit} matches`;
    this.back.disabled = this.page === 0;
    this.next.disabled = first + PER_PAGE >= this.rows.length;
    this.heads.forEach((head, at) => {
      if (at === this.sort) head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }
}

// A table is made when its section is open.
function fill(part) {
  for (const host of part.querySelectorAll(".table:empty"))
    if (!host.closest("details:not([open])")) tables[host.id] = new Table(host, data.tables[host.id]);
}
for (const part of document.querySelectorAll("details")) part.addEventListener("toggle", () => fill(part));
fill(document);

for (const button of document.querySelectorAll(".copy"))
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code); // a browser without this right: the reader copies
      button.textContent = "selected";
    }
    setTimeout(() => (button.textContent = "copy"), 2000);
  });

for (const range of document.querySelectorAll(".slide input"))
  range.addEventListener("input", () => range.closest("figure").style.setProperty("--at", `${range.value}%`));
