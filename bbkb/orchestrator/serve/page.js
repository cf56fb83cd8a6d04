/** The live page: draws what the server sends, and nothing else. Whatever a log contains stays text. */

const byId = (id) => document.getElementById(id);
const name = location.pathname.startsWith("/campaign/") ? decodeURIComponent(location.pathname.slice("/campaign/".length)) : null;
const base = name === null ? "" : `/campaign/${encodeURIComponent(name)}`;
const NEWEST_FAILURES = 5; // messages that are shown at once
const PICTURES_EVERY = 4000; // milliseconds between two looks for new pictures
const hasWebGL = Boolean(document.createElement("canvas").getContext("webgl"));

function element(tag, text = "", attributes = {}) {
  const node = Object.assign(document.createElement(tag), attributes);
  node.textContent = text;
  return node;
}

function badge(text) {
  const node = element("span", text, { className: "state" });
  node.dataset.state = text;
  return node;
}

/** Six digits; small numbers as 2.87e-6, not with a row of zeros. */
function shortNumber(value) {
  const short = Number(value.toPrecision(6));
  return short !== 0 && Math.abs(short) < 1e-4 ? short.toExponential() : String(short);
}

const shown = (value) => (value === null || value === undefined ? "" : typeof value === "number" ? shortNumber(value) : typeof value === "object" ? JSON.stringify(value) : String(value));
const listed = (parameters) => Object.entries(parameters).map(([key, value]) => `${key}=${shown(value)}`).join(", ");

function cells(values) {
  const line = element("tr");
  for (const [content, className = ""] of values) {
    const node = element("td", typeof content === "object" && content !== null ? "" : shown(content), { className });
    if (content instanceof Node) node.append(content);
    line.append(node);
  }
  return line;
}

function table(node, heads, rows, empty) {
  if (!node.tHead) {
    const line = element("tr");
    for (const [text, className = ""] of heads) line.append(element("th", text, { scope: "col", className }));
    node.createTHead().append(line);
    node.createTBody();
  }
  const lines = rows.map(cells);
  if (!lines.length) lines.push(element("tr"));
  if (!rows.length) lines[0].append(element("td", empty, { colSpan: 99 }));
  node.tBodies[0].replaceChildren(...lines);
  labelCells(node);
}

function trialLink(number) {
  return element("button", String(number), { type: "button", className: "link", onclick: () => showTrial(number) });
}

function describeList(list, pairs) {
  list.replaceChildren(...pairs.map(([term, text]) => {
    const pair = element("div");
    pair.append(element("dt", term), element("dd", shown(text)));
    return pair;
  }));
}

// ---- connection

function connected(text, isLost = false) {
  byId("connection").textContent = text;
  byId("connection").dataset.lost = String(isLost);
}

/** Updates by server-sent events. The browser reconnects by itself and says where it was (`Last-Event-ID`). */
function listen(address, take) {
  const source = new EventSource(address);
  source.onmessage = (event) => {
    connected("connected: this page updates by itself");
    take(JSON.parse(event.data));
  };
  source.onerror = () => {
    connected("the connection is lost: trying again …", true);
    if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 3000);
  };
}

async function ask(address, options = {}) {
  const answer = await fetch(address, options);
  if (!answer.ok && answer.status !== 409) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}

function showProblem(text) {
  byId("problem").hidden = !text;
  byId("problem").textContent = text;
}

// ---- all campaigns

const chosen = new Set(); // names of campaigns that are compared

function chooser(campaign) {
  const box = element("input", "", { type: "checkbox", checked: chosen.has(campaign), ariaLabel: `compare ${campaign}` });
  box.addEventListener("change", () => {
    if (box.checked) chosen.add(campaign);
    else chosen.delete(campaign);
    byId("compare").disabled = chosen.size < 2;
  });
  return box;
}

function openComparison() {
  location.href = `/compare?${new URLSearchParams([...chosen].map((campaign) => ["campaign", campaign]))}`;
}

async function showComparison() {
  byId("title").textContent = "Comparison";
  try {
    const sent = await ask(`/comparison${location.search}`);
    for (const figure of sent.figures) await drawFigure(figure);
    const links = sent.names.map((campaign) => element("a", campaign, { href: `/campaign/${encodeURIComponent(campaign)}` }));
    table(byId("differences"), [["", ""], ...sent.names.map(() => ["", ""])], sent.rows.map(([label, values]) => [[label], ...values.map((value) => [value, "wrap"])]), "no campaign has been read yet");
    byId("differences").tHead.rows[0].replaceChildren(element("th", ""), ...links.map((link) => {
      const head = element("th", "", { scope: "col" });
      head.append(link);
      return head;
    }));
    connected("as of now: reload the page for newer results");
    showProblem(sent.problems.map(([campaign, reason]) => `${campaign}: ${reason}`).join("; "));
  } catch (error) {
    showProblem(error.message);
  }
}

/** The first tags; the page of the campaign has all of them. */
function fewTags(tags) {
  const all = tags.split(" ");
  return all.length > 4 ? `${all.slice(0, 3).join(" ")} +${all.length - 3}` : tags;
}

function showCampaigns({ campaigns }) {
  byId("no-campaigns").hidden = campaigns.length > 0;
  byId("campaigns").replaceChildren(...campaigns.map((one) => cells([
    [chooser(one.name)], [element("a", one.name, { href: `/campaign/${encodeURIComponent(one.name)}` }), "wrap"],
    [badge(one.state)], [one.began ?? ""], [one.strategy ?? ""], [fewTags(one.tags ?? ""), "wrap"],
    [one.trials ?? "", "number"],
    [one.best === null || one.best === undefined ? "" : `${shown(one.best)} ${one.direction === "maximized" ? "(max)" : "(min)"}`, "number"], [one.running, "number"], [one.failed, "number"],
    [one.problem || one.updated || "", "wrap"],
  ])));
  labelCells(byId("campaigns").parentElement);
}

// ---- one campaign

const results = { points: [], improvements: [], count: 0, end: 0, axis: "", caption: "" };
let maximize = true;

function takeResults(sent) {
  if (sent.from === 0) results.points = sent.points;
  else results.points = results.points.filter(([place]) => place <= sent.from).concat(sent.points);
  if (results.points.length > 4000) results.points = results.points.filter((_, index, all) => index % 2 || index > all.length - 500);
  for (const part of ["improvements", "count", "end", "axis", "range", "caption"]) results[part] = sent[part];
}

function drawBest() {
  const { points, improvements, end } = results;
  byId("best").hidden = !points.length;
  if (!points.length) return;
  byId("best-caption").textContent = results.caption;
  const last = improvements.length ? [[end, improvements[improvements.length - 1][1]]] : [];
  const line = [...improvements, ...last];
  const few = points.length <= 300;
  const [feasible, infeasible] = [points.filter((point) => point[3]), points.filter((point) => !point[3])];
  const marks = (name, some, marker) => ({ type: points.length > 2000 ? "scattergl" : "scatter", mode: "markers", name, x: some.map((point) => point[0]), y: some.map((point) => point[1]), text: some.map((point) => `trial ${point[2]}`), hovertemplate: "<b>%{y}</b><br>%{text}<extra></extra>", marker });
  const axis = (title, more) => ({ title: { text: title, standoff: 10, font: { size: 13, color: "--muted" } }, gridcolor: "--grid", linecolor: "--line", zeroline: false, automargin: true, minexponent: 7, ...more });
  const font = { family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", size: 13, color: "--ink" };
  const spec = {
    data: [
      marks("evaluations", feasible, { color: "--point", size: few ? 7 : 4, opacity: few ? 0.75 : 0.5 }),
      ...(infeasible.length ? [marks("infeasible", infeasible, { color: "--muted", size: 5, symbol: "x" })] : []),
      { type: "scatter", mode: "lines", name: "best so far", x: line.map((point) => point[0]), y: line.map((point) => point[1]), line: { color: "--accent", width: 2.5, shape: "hv" }, hovertemplate: "best after %{x}: <b>%{y}</b><extra></extra>" },
    ],
    layout: { paper_bgcolor: "--card", plot_bgcolor: "--card", font, margin: { l: 56, r: 16, t: 30, b: 40 }, height: 360, hovermode: "closest", legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, xaxis: axis(results.axis, { rangemode: "tozero", ...(end < 8 ? { dtick: 1 } : {}) }), yaxis: axis(`value (${maximize ? "higher" : "lower"} is better)`, results.range ? { range: results.range } : {}), uirevision: "best" },
  };
  draw(byId("best-plot"), JSON.stringify(spec), hasWebGL);
}

function card(term, value, remark = "", kind = "") {
  const node = element("div", "", { className: `card ${kind}` });
  const text = element("dd", value);
  if (remark) text.append(element("small", remark));
  node.append(element("dt", term), text);
  return node;
}

function showSummary(update) {
  const { status } = update;
  const [count, whole, unit] = status.spent;
  byId("progress").max = whole;
  byId("progress").value = count;
  byId("progress-text").textContent = `${count} of ${whole} ${unit}${update.left ? `, about ${update.left} left` : ""}`;
  const cards = [
    card("Best value", status.best_value === null ? "none" : shown(status.best_value), (update.objective && `${update.objective}, `) + (update.maximize ? "maximized" : "minimized"), "lead"),
    ...update.goals.map((one) => card(one.name, one.value, one.remark)),
    card("Running", String(update.running.length && status.in_flight), `${status.slots} worker${status.slots === 1 ? "" : "s"}, ${status.waiting} queued`),
    card("Evaluations done", String(status.done), status.outcomes),
    card("Failed", String(status.failed)),
    card("Utilization", `${Math.round(100 * status.utilization)}%`, update.idle && `idle: ${update.idle}`),
    ...(update.checkpoints.length ? [card("Checkpoints", update.checkpoints[0], update.checkpoints[1])] : []),
    card("Elapsed", update.elapsed, update.holder ? `coordinator: ${update.holder}` : "no process runs it"),
    ...(status.remarks.length ? [card("Warnings", String(status.remarks.length), status.remarks.join("; "), "wide")] : []),
  ];
  const narrow = cards.length - (status.remarks.length ? 1 : 0);
  byId("cards").style.setProperty("--columns", Math.ceil(narrow / Math.ceil(narrow / 6)));
  byId("cards").replaceChildren(...cards);
  byId("best-card").hidden = !update.best.length;
  describeList(byId("best-parameters"), update.best);
  byId("recommended-card").hidden = !update.recommended.length;
  describeList(byId("recommended-parameters"), update.recommended);
}

function showTables(update) {
  table(byId("running"), [["trial"], ["running for"], ["attempt", "number"], ["last report"], ["parameters"]], update.running.map((one) => [
    [trialLink(one.trial)], [one.age], [one.attempt, "number"], [one.reported ? `step ${one.reported[0]}: ${shown(one.reported[1])}` : ""], [listed(one.parameters), "wrap"],
  ]), "no trial is running");
  table(byId("recent"), [["trial"], ["ended"], ["value", "number"], ["took", "number"], ["worker"], ["parameters"]], update.recent.map((one) => [
    [trialLink(one.trial)], [badge(one.ended)], [one.value, "number"], [one.seconds, "number"], [one.worker], [listed(one.parameters), "wrap"],
  ]), "no result yet");
  byId("failures-card").hidden = !update.failures.length;
  showFailures(update.failures);
}

const failureLines = new Map(); // by kind and summary, so that what a reader has opened stays open

/** Failures by message: the newest ones, and the others behind a fold. */
function showFailures(groups) {
  const lines = groups.map((group) => {
    const key = `${group.kind} ${group.summary}`;
    const known = failureLines.get(key);
    if (known && known.count === group.count) return known.line;
    const line = element("li");
    const trials = group.trials.flatMap((number, index) => [index ? ", " : "", trialLink(number)]);
    const attempts = group.count === 1 ? "1 attempt" : `${group.count} attempts`;
    line.append(badge(group.kind), " ", element("strong", attempts), `: ${group.summary} (trial${group.trials.length === 1 ? "" : "s"} `, ...trials, group.count > group.trials.length ? ", …)" : ")");
    if (group.message.includes("\n")) {
      const details = fold("the newest in full", element("pre", group.message));
      details.open = Boolean(known?.line.querySelector("details")?.open);
      line.append(details);
    }
    failureLines.set(key, { count: group.count, line });
    return line;
  });
  byId("failures").replaceChildren(...lines.slice(0, NEWEST_FAILURES));
  byId("older").replaceChildren(...lines.slice(NEWEST_FAILURES));
  byId("older-failures").hidden = lines.length <= NEWEST_FAILURES;
  byId("older-failures").querySelector("summary").textContent = `${lines.length - NEWEST_FAILURES} older messages`;
}

function take(update) {
  byId("title").textContent = update.name;
  document.title = `${update.name} · bbkb`;
  byId("state").hidden = false;
  byId("state").textContent = update.state;
  byId("state").dataset.state = update.state;
  showProblem(update.problem);
  if (!update.status) return connected(`reading the log: ${update.position} of ${update.length} events`);
  if (update.state === "reading") connected(`reading the log: ${update.position} of ${update.length} events`);
  byId("subtitle").textContent = update.subtitle;
  byId("note").hidden = !update.note;
  byId("note").textContent = update.note;
  byId("actions").hidden = update.state !== "running" && update.state !== "stopping";
  maximize = update.maximize;
  showSummary(update);
  showTables(update);
  takeResults(update.results);
  drawBest();
  if (!pictures.timer) pictures.timer = setTimeout(refreshPictures, pictures.position < 0 ? 200 : PICTURES_EVERY);
}

const pictures = { position: -1, timer: null };

async function refreshPictures() {
  pictures.timer = null;
  if (document.hidden) return; // drawn again with the next update that is seen
  try {
    const sent = await ask(`${base}/pictures`);
    if (sent.position === pictures.position) return;
    pictures.position = sent.position;
    for (const figure of sent.figures) {
      await drawFigure(figure);
      await new Promise((resolve) => setTimeout(resolve)); // lets the browser show it, and scroll
    }
    byId("configuration").textContent = sent.configuration;
    byId("model").hidden = !sent.model.length;
    describeList(byId("model"), sent.model);
    byId("internals").hidden = !sent.model.length && !sent.figures.some((figure) => figure.section === "internals");
    loadTrials();
  } catch (error) {
    connected(`pictures: ${error.message}`, true);
  }
}

async function drawFigure(figure) {
  let node = byId(`figure-${figure.name}`);
  if (!node) {
    node = element("figure", "", { id: `figure-${figure.name}`, className: figure.wide ? "card wide" : "card" });
    const scroll = element("div", "", { className: "scroll" });
    scroll.append(element("div", "", { className: "plot" }));
    node.append(element("h2", figure.title), element("figcaption"), scroll);
    byId(`${figure.section}-figures`).append(node);
  }
  node.querySelector("figcaption").textContent = figure.caption;
  const plot = node.querySelector(".plot");
  plot.setAttribute("role", "img");
  plot.setAttribute("aria-label", `${figure.title}: ${figure.caption}`);
  plot.style.height = `${figure.height}px`;
  plot.style.minWidth = `${figure.min_width}px`;
  plot.dataset.spec = figure.spec;
  await draw(plot, figure.spec, hasWebGL);
}

// ---- trials

let page = 0;
const sorting = { column: "", isDescending: true }; // "" until the server has named the column of the first order

function sortBy(column) {
  sorting.isDescending = sorting.column === column.name ? !sorting.isDescending : column.descends;
  sorting.column = column.name;
  page = 0;
  loadTrials();
}

/** A cell of the table. Long texts are shown in full, unlike in the report. */
function cellOf(value, kind) {
  if (kind === "trial") return [trialLink(value)];
  return kind === "status" ? [badge(value)] : [value, kind === "text" ? "" : kind];
}

async function loadTrials() {
  const query = new URLSearchParams({ order: sorting.column, descending: sorting.isDescending ? "1" : "0", text: byId("text").value, page });
  const sent = await ask(`${base}/trials?${query}`);
  sorting.column = sent.order;
  const heads = sent.columns.map((column) => {
    const head = element("th", "", { scope: "col", className: column.kind });
    head.append(element("button", column.heading, { type: "button", onclick: () => sortBy(column) }));
    if (column.name === sent.order) head.setAttribute("aria-sort", sorting.isDescending ? "descending" : "ascending");
    return head;
  });
  const node = byId("trial-table");
  const line = element("tr");
  line.append(...heads);
  (node.tHead ?? node.createTHead()).replaceChildren(line);
  if (!node.tBodies.length) node.createTBody();
  table(node, [], sent.rows.map((row) => row.map((value, index) => cellOf(value, sent.columns[index].kind))), byId("text").value ? "no trial has this text" : "no trial yet");
  byId("page-range").textContent = `page ${sent.page + 1} of ${Math.max(1, sent.pages)}`;
  byId("previous-page").disabled = page === 0;
  byId("next-page").disabled = page + 1 >= sent.pages;
}

function turn(step) {
  page = Math.max(0, page + step);
  loadTrials();
}

function pairs(object) {
  const list = element("dl");
  for (const [key, value] of Object.entries(object)) list.append(element("dt", key), element("dd", shown(value)));
  return list;
}

function fold(summary, content) {
  const details = element("details");
  details.append(element("summary", summary), content);
  return details;
}

function drawReports(plot, reports) {
  const axis = { gridcolor: "--grid", linecolor: "--line", zeroline: false, automargin: true };
  const lines = [{ type: "scatter", mode: "lines+markers", x: reports.map(([step]) => step), y: reports.map(([, value]) => value), line: { color: "--accent" } }];
  const layout = { height: 220, margin: { l: 40, r: 10, t: 10, b: 30 }, paper_bgcolor: "--card", plot_bgcolor: "--card", font: { color: "--ink" }, xaxis: axis, yaxis: axis };
  draw(plot, JSON.stringify({ data: lines, layout }), hasWebGL);
}

async function showTrial(number) {
  const body = byId("trial-body");
  byId("trial-title").textContent = `Trial ${number}`;
  try {
    const trial = await ask(`${base}/trials/${number}`);
    const parts = [element("p", trial.reason), ...(trial.scores ? [fold("The model's score", element("p", trial.scores))] : []), ...(trial.broken_constraints ? [element("p", `${trial.broken_constraints}.`)] : []), ...(trial.training ? [element("p", `Training: ${trial.training}.`)] : []), element("h3", "Parameters"), pairs(trial.parameters), element("h3", "Result"), pairs(trial.result)];
    parts.push(element("h3", "Attempts"));
    for (const attempt of trial.attempts) {
      parts.push(element("p", `${attempt.attempt}: ${attempt.ended} after ${attempt.seconds} on ${attempt.worker || "an unknown worker"}, begun ${attempt.started}`));
      if (attempt.message) parts.push(element("pre", attempt.message, { tabIndex: 0 }));
    }
    if (!trial.attempts.length) parts.push(element("p", "none has ended yet"));
    for (const output of trial.outputs) parts.push(element("h3", `Output of attempt ${output.attempt} (its end)`), element("pre", output.text, { tabIndex: 0 }));
    const curve = trial.reports.length > 1 ? element("div", "", { className: "plot", role: "img", ariaLabel: "Reported values by step" }) : null;
    if (trial.reports.length) parts.push(element("h3", "Reports"), ...(curve ? [curve] : []), element("pre", trial.reports.map(([step, value]) => [`step ${step}: ${shown(value)}`, ...Object.entries(trial.report_metrics[step] ?? {}).map(([name, number]) => `${name} ${shown(number)}`)].join(", ")).join("\n"), { tabIndex: 0 }));
    body.replaceChildren(...parts);
    if (!byId("trial-dialog").open) byId("trial-dialog").showModal(); // first, because a picture takes the width that it has
    if (curve) drawReports(curve, trial.reports);
  } catch (error) {
    body.replaceChildren(element("p", error.message));
  }
  if (!byId("trial-dialog").open) byId("trial-dialog").showModal();
}

async function stop(now) {
  const question = now ? "Cancel the running evaluations and stop?" : "Start nothing new, and stop after the running evaluations?";
  if (!confirm(question)) return;
  const options = { method: "POST", headers: { "Content-Type": "application/json", "X-Requested-By": "bbkb" }, body: JSON.stringify({ now }) };
  try {
    byId("said").textContent = (await ask(`${base}/stop`, options)).message;
  } catch (error) {
    byId("said").textContent = error.message;
  }
}

function redraw() {
  if (name !== null) drawBest();
  for (const plot of document.querySelectorAll(".plot[data-spec]")) draw(plot, plot.dataset.spec, hasWebGL);
}

function begin() {
  const isComparison = location.pathname === "/compare";
  byId("main").append(byId(isComparison ? "comparison-template" : name === null ? "overview-template" : "campaign-template").content);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  if (isComparison) return showComparison();
  if (name === null) {
    byId("compare").addEventListener("click", openComparison);
    return listen("/events", showCampaigns);
  }
  byId("title").textContent = name;
  byId("drain").addEventListener("click", () => stop(false));
  byId("stop").addEventListener("click", () => stop(true));
  byId("text").addEventListener("input", () => { page = 0; loadTrials(); });
  byId("previous-page").addEventListener("click", () => turn(-1));
  byId("next-page").addEventListener("click", () => turn(1));
  byId("find").addEventListener("submit", (event) => { event.preventDefault(); showTrial(Number.parseInt(byId("number").value, 10) || 0); });
  listen(`${base}/events`, take);
}

begin();
