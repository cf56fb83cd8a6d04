/** Draws the pictures and the table from the JSON blocks of this page. Uses no network. `figures.js` comes before. */

const ROWS_A_PAGE = innerWidth > 600 ? 50 : 20;
const byId = (id) => document.getElementById(id);

/** The text of a block of this page, which carries it gzipped and in base64. */
async function unpack(id) {
  const packed = Uint8Array.from(atob(byId(id).textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// ---- pictures

async function drawAll() {
  const hasWebGL = Boolean(document.createElement("canvas").getContext("webgl"));
  for (const plot of document.querySelectorAll(".plot")) {
    plot.closest("figure").classList.add("drawn"); // in place of its static picture, if it has one
    await draw(plot, await unpack(plot.dataset.spec), hasWebGL);
    await new Promise((resolve) => setTimeout(resolve)); // lets the browser show it, and scroll
  }
}

async function showPictures() {
  if (!document.querySelector(".plot")) return;
  // plotly.js, which defines `window.Plotly`; a shared file was loaded before this script
  if (byId("plotly-gzip")) (0, eval)(await unpack("plotly-gzip"));
  await drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
}

// ---- table of trials

let columns, rows, statusColumn; // set once, by showTable
const view = { sortedBy: 0, isDescending: false, page: 0, rows: [] };

function element(name, text = "", attributes = {}) {
  const node = Object.assign(document.createElement(name), attributes);
  node.textContent = text; // text only: whatever a message contains stays text
  return node;
}

function cell(value, kind) {
  const text = value === null ? "" : String(value);
  if (kind !== "status") return element("td", text, { className: kind });
  const node = element("td");
  const badge = element("span", text, { className: "state" });
  badge.dataset.state = text;
  node.append(badge);
  return node;
}

/** A trial's line of cells and, when something went wrong, its message on a line below: unfolds if it has several. */
function lines(row) {
  const line = element("tr");
  line.append(...cellColumns().map((column) => cell(row[columns.indexOf(column)], column.kind)));
  const message = row[columns.findIndex((column) => column.kind === "message")];
  if (!message) return [line];
  const [first, ...rest] = ((row[statusColumn] === "failed" ? "" : "earlier attempt: ") + message).split("\n");
  const below = element("tr", "", { className: "message" });
  const node = element("td", rest.length ? "" : first, { colSpan: cellColumns().length });
  if (rest.length) {
    const details = element("details");
    details.append(element("summary", first), element("pre", rest.join("\n")));
    node.append(details);
  }
  below.append(node);
  return [line, below];
}

function cellColumns() {
  return columns.filter((column) => column.kind !== "message");
}

/** Order of two cells: numbers by size, text by alphabet, what is missing always last. */
function compare(a, b, sign) {
  const isMissing = (value) => value === null || value === "";
  if (isMissing(a) || isMissing(b)) return isMissing(a) - isMissing(b);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), "en", { numeric: true });
}

function selectRows() {
  const status = byId("status-filter").value;
  const words = byId("text-filter").value.toLowerCase().trim();
  const sign = view.isDescending ? -1 : 1;
  view.rows = rows
    .filter((row) => !status || row[statusColumn] === status)
    .filter((row) => !words || row.some((value) => String(value ?? "").toLowerCase().includes(words)))
    .sort((a, b) => compare(a[view.sortedBy], b[view.sortedBy], sign));
  view.page = 0;
  showRows();
}

function showRows() {
  const first = view.page * ROWS_A_PAGE;
  const shown = view.rows.slice(first, first + ROWS_A_PAGE);
  document.querySelector("#trial-table tbody").replaceChildren(...shown.flatMap(lines));
  labelCells(byId("trial-table"));
  const last = first + shown.length;
  byId("page-range").textContent = shown.length ? `${first + 1} to ${last} of ${view.rows.length}` : "no trials";
  byId("previous-page").disabled = view.page === 0;
  byId("next-page").disabled = last >= view.rows.length;
}

function markSorted() {
  document.querySelectorAll("#trial-table th").forEach((head, index) => {
    if (index === view.sortedBy) head.setAttribute("aria-sort", view.isDescending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
}

function sortBy(index) {
  view.isDescending = view.sortedBy === index && !view.isDescending;
  view.sortedBy = index;
  markSorted();
  selectRows();
}

function turnPage(step) {
  view.page += step;
  showRows();
}

async function showTable() {
  ({ columns, rows } = JSON.parse(await unpack("trial-rows")));
  statusColumn = columns.findIndex((column) => column.kind === "status");
  view.rows = rows;
  const heads = cellColumns().map((column, index) => {
    const head = element("th", "", { scope: "col", className: column.kind });
    head.append(element("button", column.name, { type: "button", onclick: () => sortBy(index) }));
    return head;
  });
  const line = element("tr");
  line.append(...heads);
  document.querySelector("#trial-table thead").replaceChildren(line);
  const counts = new Map();
  for (const row of rows) counts.set(row[statusColumn], (counts.get(row[statusColumn]) ?? 0) + 1);
  const options = [...counts].map(([status, count]) => element("option", `${status} (${count})`, { value: status }));
  byId("status-filter").append(element("option", `all (${rows.length})`, { value: "" }), ...options);
  byId("status-filter").addEventListener("change", selectRows);
  byId("text-filter").addEventListener("input", selectRows);
  byId("text-filter").form.addEventListener("submit", (event) => event.preventDefault());
  byId("previous-page").addEventListener("click", () => turnPage(-1));
  byId("next-page").addEventListener("click", () => turnPage(1));
  markSorted();
  showRows();
}

function showProblem(error) {
  byId("problem").hidden = false;
  byId("problem").textContent = `The pictures or the table could not be drawn; a current browser can do it. (${error})`;
}

document.documentElement.classList.add("scripted");
showTable().then(showPictures).catch(showProblem);
