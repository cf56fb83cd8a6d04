"use strict";
/** Builds the page from its snapshot, which a report contains and a live page polls. Whatever a campaign contains stays text. */

const byId = (id) => document.getElementById(id);
const root = document.body.dataset.root; // the address of the server; empty in a report
const here = location.pathname.slice(root.length);
const ROWS_A_PAGE = innerWidth > 600 ? 25 : 10;
const hasWebGL = Boolean(document.createElement("canvas").getContext("webgl"));

/** An element with properties and children; texts become text nodes. */
function make(tag, properties = {}, ...children) {
  const { data = {}, ...others } = properties;
  const node = Object.assign(document.createElement(tag), others);
  Object.assign(node.dataset, data);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const badge = (text) => make("span", { className: "state", data: { state: text } }, text);
const fold = (title, ...children) => make("details", {}, make("summary", {}, title), ...children);

function copyButton(text) {
  const button = make("button", { type: "button", className: "copy", title: "Copy" }, "Copy");
  button.onclick = async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  };
  return button;
}

const command = (text) => make("div", { className: "command" }, make("code", {}, text), copyButton(text));

function fill(id, ...children) {
  byId(id).replaceChildren(...children);
  return byId(id);
}

function showProblem(text) {
  byId("problem").hidden = !text;
  byId("problem").textContent = text;
}

// ---- tables

/** Small numbers as 2.87e-6, not with a row of zeros. */
function shown(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "number" && value !== 0 && Math.abs(value) < 1e-4 ? value.toExponential() : String(value);
}

function cell(value, kind) {
  const text = shown(value);
  if (kind === "status") return make("td", {}, badge(text));
  if (kind === "trial" && root) return make("td", { className: "number" }, make("button", { type: "button", className: "link", onclick: () => showTrial(value) }, text));
  return make("td", { className: kind }, value instanceof Node ? value : text);
}

/** Cells have the label and the visibility of their column: on a phone, a row becomes a list. */
function line(columns, row) {
  const cells = columns.map((column, index) => {
    const node = cell(row[index], column.kind);
    node.dataset.label = column.name;
    if (/\bextra\b/.test(column.kind)) node.classList.add("extra");
    return node;
  });
  return make("tr", {}, ...cells);
}

function table(id, columns, rows, empty = "") {
  const heads = columns.map((column) => make("th", { scope: "col", className: column.kind }, column.name));
  const lines = rows.map((row) => line(columns, row));
  if (!rows.length && empty) lines.push(make("tr", {}, make("td", { colSpan: columns.length }, empty)));
  return fill(id, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...lines));
}

const trials = { columns: [], rows: [], shown: [], status: 0, message: -1, sortedBy: 0, descends: true, page: 0 };

/** Order of two cells: numbers by size, text by alphabet, what is missing always last. */
function compare(a, b, sign) {
  const isMissing = (value) => value === null || value === "";
  if (isMissing(a) || isMissing(b)) return isMissing(a) - isMissing(b);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), "en", { numeric: true });
}

function selectTrials() {
  const status = byId("status-filter").value;
  const words = byId("text-filter").value.toLowerCase().trim();
  trials.shown = trials.rows
    .filter((row) => !status || row[trials.status] === status)
    .filter((row) => !words || row.some((value) => String(value ?? "").toLowerCase().includes(words)))
    .sort((a, b) => compare(a[trials.sortedBy], b[trials.sortedBy], trials.descends ? -1 : 1));
  trials.page = Math.min(trials.page, Math.max(0, Math.ceil(trials.shown.length / ROWS_A_PAGE) - 1));
  showTrials();
}

/** A trial's row and, when something went wrong, its message on a row below, which unfolds if it has several lines. */
function trialLines(row) {
  const cells = trials.columns.filter((_, index) => index !== trials.message);
  const first = line(cells, row.filter((_, index) => index !== trials.message));
  const message = trials.message < 0 ? "" : row[trials.message];
  if (!message) return [first];
  const [head, ...rest] = ((row[trials.status] === "failed" ? "" : "earlier attempt: ") + message).split("\n");
  const text = rest.length ? fold(head, make("pre", {}, rest.join("\n"))) : head;
  return [first, make("tr", { className: "message" }, make("td", { colSpan: cells.length }, text))];
}

function showTrials() {
  const first = trials.page * ROWS_A_PAGE;
  const some = trials.shown.slice(first, first + ROWS_A_PAGE);
  const heads = trials.columns.flatMap((column, index) => {
    if (index === trials.message) return [];
    const head = make("th", { scope: "col", className: column.kind }, make("button", { type: "button", onclick: () => sortBy(index) }, column.name));
    if (index === trials.sortedBy) head.setAttribute("aria-sort", trials.descends ? "descending" : "ascending");
    return [head];
  });
  fill("trial-table", make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...some.flatMap(trialLines)));
  const last = first + some.length;
  byId("page-range").textContent = some.length ? `${first + 1} to ${last} of ${trials.shown.length}` : "no trials";
  byId("previous-page").disabled = trials.page === 0;
  byId("next-page").disabled = last >= trials.shown.length;
}

function sortBy(index) {
  trials.descends = trials.sortedBy === index && !trials.descends;
  trials.sortedBy = index;
  selectTrials();
}

function takeTrials({ columns, rows, unlisted }) {
  const isFirst = !trials.columns.length;
  trials.columns = columns.map((column, index) => (index ? column : { ...column, kind: "trial" }));
  trials.rows = rows;
  trials.status = columns.findIndex((column) => column.kind === "status");
  trials.message = columns.findIndex((column) => column.kind === "message");
  if (isFirst) trials.descends = Boolean(root); // the newest first while it runs
  byId("unlisted").hidden = !unlisted;
  byId("unlisted").textContent = `The best and the newest trials; bbkb export writes ${unlisted} more.`;
  const counts = new Map();
  for (const row of rows) counts.set(row[trials.status], (counts.get(row[trials.status]) ?? 0) + 1);
  const chosen = byId("status-filter").value;
  const options = [["", `all (${rows.length})`], ...[...counts].map(([status, count]) => [status, `${status} (${count})`])];
  fill("status-filter", ...options.map(([value, text]) => make("option", { value, selected: value === chosen }, text)));
  selectTrials();
}

// ---- pictures

/** A picture's specification with the CSS variables among its colors (`--ink`) replaced by their present values. */
function themed(spec) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => (name.startsWith("--") ? style.getPropertyValue(name).trim() : name);
  return JSON.parse(JSON.stringify(spec), (key, value) => {
    if (key === "colorscale") return value.map(([position, name]) => [position, color(name)]);
    return key.endsWith("color") && typeof value === "string" ? color(value) : value;
  });
}

const drawn = new Map(); // name → the picture and its text as JSON

async function drawOne(plot, figure) {
  const spec = themed(figure.spec);
  if (!hasWebGL && spec.data[0].type === "parcoords") {
    plot.textContent = "This picture needs WebGL, which this browser does not offer. The table of trials has its numbers.";
    plot.style.height = "auto";
    return;
  }
  if (!hasWebGL) for (const trace of spec.data) trace.type = trace.type === "scattergl" ? "scatter" : trace.type;
  await Plotly.react(plot, spec.data, spec.layout, { responsive: true, displaylogo: false, modeBarButtons: [["toImage"]] });
}

/** Adds or changes the card of a figure. Returns it if its picture has to be drawn. */
function place(figure, id) {
  const text = JSON.stringify(figure);
  const known = drawn.get(figure.name);
  if (known && known.text === text) return [];
  const label = `${figure.title}. ${figure.caption}`;
  const plot = known ? known.plot : make("div", { className: "plot", role: "img" });
  plot.ariaLabel = label;
  plot.style.height = `${figure.spec.layout.height}px`;
  plot.style.minWidth = `${figure.width}px`;
  const caption = make("figcaption", {}, figure.caption);
  if (known) known.plot.closest("figure").querySelector("figcaption").replaceWith(caption);
  else {
    const help = figure.explanation ? fold("How to read it", make("p", {}, figure.explanation)) : null;
    byId(id).append(make("figure", { className: figure.wide ? "card wide" : "card", id: figure.name }, make("h2", {}, figure.title), caption, make("div", { className: "scroll" }, plot), help));
  }
  drawn.set(figure.name, { plot, text, figure });
  return [[plot, figure]];
}

async function drawAll(figures, id) {
  // all cards first, because a picture is as wide as its card; one without a neighbor takes both columns
  let column = 0;
  for (const figure of figures) {
    const next = figures[figures.indexOf(figure) + 1];
    if (!figure.wide && column === 0 && (!next || next.wide || next.name === "sizes")) figure.wide = true;
    column = figure.wide ? 0 : 1 - column;
  }
  for (const [plot, figure] of figures.flatMap((figure) => place(figure, figure.name === "sizes" ? "internal-figures" : id))) {
    await drawOne(plot, figure);
    if (root) await new Promise((resolve) => setTimeout(resolve)); // lets the browser show it, and scroll
  }
}

/** Paper is narrower than the screen, and shows what is folded; figures are drawn as wide as the screen. */
function preparePrint() {
  for (const node of document.querySelectorAll("main details:not(details details, td details, figure details)")) node.open = node.id !== "sessions";
  for (const { plot } of drawn.values()) {
    if (!plot.layout) continue;
    if (plot.offsetWidth < 50) Plotly.Plots.resize(plot);
    plot.style.zoom = Math.min(1, 660 / Math.max(plot.offsetWidth, 1));
  }
}

function endPrint() {
  for (const { plot } of drawn.values()) plot.style.zoom = "";
}

// ---- one campaign

const seen = new Map(); // part → its JSON, so that what a reader has opened or selected stays

function changed(name, part) {
  const text = JSON.stringify(part ?? null);
  if (seen.get(name) === text) return false;
  seen.set(name, text);
  return true;
}

const pair = ([term, value, remark]) => make("div", {}, make("dt", {}, term), make("dd", {}, value, remark ? make("small", {}, remark) : null));

function showAnswer(answer, next) {
  const steps = next.map(([text, line]) => make("li", {}, text, line ? command(line) : null));
  const after = make("div", { className: "next" }, make("h3", {}, "What next"), make("ul", {}, ...steps));
  if (answer.missing) {
    fill("answer", make("div", {}, make("h2", {}, "No best configuration yet"), make("p", {}, `${answer.missing}.`)), after);
    return;
  }
  const forms = answer.copies.map(([name, text]) => {
    const choose = make("button", { type: "button", ariaPressed: "false" }, name);
    return { choose, text };
  });
  const shown = make("div");
  const select = (form) => {
    for (const { choose } of forms) choose.ariaPressed = String(choose === form.choose);
    shown.replaceChildren(command(form.text));
  };
  for (const form of forms) form.choose.onclick = () => select(form);
  select(forms[0]);
  fill("answer",
    make("div", { className: "value" }, make("p", { className: "label" }, answer.label), make("p", { className: "big" }, answer.value, make("span", { className: "deviation" }, answer.deviation ? ` ${answer.deviation}` : "")), make("p", { className: "hint" }, answer.remark)),
    make("div", { className: "configuration" }, make("h2", {}, "Best configuration"), make("dl", {}, ...answer.parameters.map(pair)), make("div", { className: "forms" }, ...forms.map((form) => form.choose)), shown),
    after);
  if (answer.front) {
    byId("answer").append(make("div", { className: "front" }, make("h3", {}, "Front"), make("div", { className: "scroll" }, make("table", { id: "front-table" }))));
    table("front-table", answer.front.columns, answer.front.rows);
  }
}

function showProblems(failures, warnings) {
  const causes = failures.map((one) => {
    const number = root ? make("button", { type: "button", className: "link", onclick: () => showTrial(one.trial) }, `trial ${one.trial}`) : `trial ${one.trial}`;
    const text = make("p", {}, make("strong", {}, one.attempts), " ", badge(one.kind), ` ${one.summary} (`, number, ")");
    return make("li", {}, text, one.message.includes("\n") ? fold("the whole message", make("pre", {}, one.message)) : null);
  });
  const parts = [];
  if (causes.length) parts.push(make("div", { className: "card problem" }, make("h2", {}, "Failures by cause"), make("ul", {}, ...causes)));
  if (warnings.length) parts.push(make("div", { className: "card problem" }, make("h2", {}, "Warnings"), make("ul", {}, ...warnings.map((text) => make("li", {}, text)))));
  fill("problems", ...parts);
}

function showProgress(data) {
  const { done, total, unit, left } = data.progress;
  const isOpen = data.phase === "running" || data.phase === "stopping";
  byId("progress").hidden = !isOpen || (data.held === false);
  byId("progress-bar").max = total;
  byId("progress-bar").value = done;
  byId("progress-text").textContent = `${done} of ${total} ${unit}${left ? `, ${left}` : ""}${data.held ? ` · run by ${data.held}` : ""}`;
  byId("stop").hidden = !(root && data.held && data.phase === "running");
  const columns = [{ name: "trial", kind: "trial" }, { name: "running for", kind: "" }, { name: "last report", kind: "" }, { name: "parameters", kind: "wrap" }];
  table("running", columns, data.running, "no trial is running");
}

async function showCampaign(data) {
  byId("campaign").hidden = false;
  byId("state").hidden = false;
  byId("state").textContent = byId("state").dataset.state = data.state;
  byId("subtitle").textContent = data.subtitle;
  byId("note").hidden = !data.note;
  byId("note").textContent = data.note;
  showProgress(data);
  if (changed("answer", [data.answer, data.next])) showAnswer(data.answer, data.next);
  if (changed("problems", [data.failures, data.warnings])) showProblems(data.failures, data.warnings);
  if (changed("facts", data.facts)) fill("facts", ...data.facts.map(pair));
  if (changed("trials", data.trials)) takeTrials(data.trials);
  if (changed("details", data.details)) fill("details", ...data.details.map(pair));
  if (changed("batches", data.batches) && data.batches) table("batches", data.batches.columns, data.batches.rows);
  if (changed("sessions", data.sessions)) table("session-table", data.sessions.columns, data.sessions.rows, "no session has started");
  byId("settings-set").textContent = data.settings.set;
  byId("settings-all").textContent = data.settings.all;
  await drawAll(data.figures, "figures");
}

async function showTrial(number) {
  const answer = await ask(`trial/${number}`);
  byId("trial-title").textContent = `Trial ${number}`;
  const body = answer.lines.map((text) => make("p", {}, text));
  if (answer.outputs.length) body.push(...answer.outputs.map((one) => fold(`output of attempt ${one.attempt}`, make("pre", {}, one.text))));
  fill("trial-body", ...body);
  byId("trial").showModal();
}

// ---- live

async function ask(path, options = {}) {
  const answer = await fetch(`${root}${here.replace(/\/$/, "")}/${path}`, options);
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}

async function stop(now) {
  if (now && !confirm("Cancel the running trials? A resume repeats them.")) return;
  const body = JSON.stringify({ now });
  const { message } = await ask("stop", { method: "POST", body, headers: { "Content-Type": "application/json" } });
  connected(message);
}

function connected(text, isLost = false) {
  byId("connection").textContent = text;
  byId("connection").dataset.lost = String(isLost);
}

const chosen = new Set();

function showCampaigns({ campaigns }) {
  byId("campaigns").hidden = false;
  byId("title").textContent = "Campaigns";
  const rows = campaigns.map((one) => {
    const box = make("input", { type: "checkbox", checked: chosen.has(one.name), ariaLabel: `compare ${one.name}` });
    box.onchange = () => {
      chosen[box.checked ? "add" : "delete"](one.name);
      byId("compare").disabled = chosen.size < 2;
    };
    const link = make("a", { href: `${root}/campaign/${encodeURIComponent(one.name)}/` }, one.name);
    return [box, link, one.state, one.began, one.strategy, one.tags, one.trials, one.best, one.problem || one.updated];
  });
  const kinds = [["", ""], ["campaign", "wrap"], ["state", "status"], ["began", ""], ["strategy", ""], ["tags", "wrap"], ["trials", "number"], ["best", "number"], ["updated", "wrap"]];
  table("campaign-table", kinds.map(([name, kind]) => ({ name, kind })), rows, "no campaign yet");
}

async function showComparison({ names, rows, figures, problems }) {
  byId("comparison").hidden = false;
  byId("title").textContent = "Comparison";
  showProblem(problems.map(([name, reason]) => `${name}: ${reason}`).join("; "));
  table("differences", [{ name: "", kind: "" }, ...names.map((name) => ({ name, kind: "" }))], rows.map(([label, cells]) => [label, ...cells]));
  await drawAll(figures, "courses");
}

async function show(data) {
  if (data.campaigns) showCampaigns(data);
  else if (data.names) await showComparison(data);
  else if (data.problem) showProblem(data.problem);
  else {
    showProblem("");
    await showCampaign(data);
  }
}

async function poll() {
  let tag = "";
  for (;;) {
    const began = performance.now();
    try {
      const answer = await fetch(`${root}${here.replace(/\/$/, "")}/snapshot${location.search}`, { headers: tag ? { "If-None-Match": tag } : {} });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag") ?? "";
        await show(await answer.json());
      } else if (answer.status !== 304) throw new Error((await answer.text()).trim());
      connected("live: this page updates by itself");
    } catch (error) {
      connected(error instanceof TypeError ? "the server has ended, or is out of reach: trying again …" : error.message, true);
    }
    const pause = Math.max(2000, 5 * (performance.now() - began));
    await new Promise((resolve) => setTimeout(resolve, document.hidden ? 4 * pause : pause));
  }
}

// ---- start

/** The text of a block of this page, which carries it gzipped and in base64. */
async function unpack(id) {
  const packed = Uint8Array.from(atob(byId(id).textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

async function start() {
  const form = byId("text-filter").form;
  form.addEventListener("submit", (event) => event.preventDefault());
  byId("status-filter").addEventListener("change", selectTrials);
  byId("text-filter").addEventListener("input", selectTrials);
  byId("previous-page").onclick = () => { trials.page -= 1; showTrials(); };
  byId("next-page").onclick = () => { trials.page += 1; showTrials(); };
  byId("internals").addEventListener("toggle", () => drawn.has("sizes") && Plotly.Plots.resize(drawn.get("sizes").plot));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(({ plot, figure }) => drawOne(plot, figure)));
  addEventListener("beforeprint", preparePrint);
  addEventListener("afterprint", endPrint);
  if (root) {
    byId("home").href = `${root}/`;
    byId("drain").onclick = () => stop(false).catch((error) => showProblem(error.message));
    byId("cancel").onclick = () => stop(true).catch((error) => showProblem(error.message));
    byId("compare").onclick = () => (location.href = `${root}/compare/?${new URLSearchParams([...chosen].map((name) => ["campaign", name]))}`);
    await poll();
    return;
  }
  // an open document in a frame delays the page's load event, which programs that print wait for
  const frame = make("iframe", { hidden: true });
  document.body.append(frame);
  frame.contentDocument?.open();
  try {
    if (byId("plotly").textContent) (0, eval)(await unpack("plotly"));
    await show(JSON.parse(await unpack("snapshot")));
  } finally {
    frame.contentDocument?.close();
    frame.remove();
  }
}

start().catch((error) => showProblem(`The page could not be drawn; a current browser can do it. (${error})`));
