"use strict";

/** Pictures in plotly's JSON format, in the colors of the page, and the labels of tables: for report and live page. */

/** A picture's specification with the CSS variables among its colors (`--ink`) replaced by their present values. */
function themed(text) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  return JSON.parse(text, (key, value) => {
    if (key === "colorscale") return value.map(([position, name]) => [position, color(name)]);
    return key.endsWith("color") && typeof value === "string" ? color(value) : value;
  });
}

function draw(plot, text, hasWebGL) {
  const spec = themed(text);
  if (!hasWebGL && spec.data[0].type === "parcoords") {
    plot.textContent = "This picture needs WebGL, which this browser does not offer. The table of trials has its numbers.";
    plot.style.height = "auto";
    return undefined;
  }
  if (!hasWebGL) {
    for (const trace of spec.data) trace.type = trace.type === "scattergl" ? "scatter" : trace.type;
  }
  const config = { responsive: true, displaylogo: false, modeBarButtons: [["toImage"]] };
  return Plotly.react(plot, spec.data, spec.layout, config);
}


/** Gives each cell the label and the visibility of its column: on a phone, a row becomes a list. */
function labelCells(table) {
  const heads = [...table.tHead.rows[0].cells];
  for (const row of table.tBodies[0].rows) {
    if (row.cells.length !== heads.length) continue; // a message across the whole row
    [...row.cells].forEach((cell, index) => {
      cell.dataset.label = heads[index].textContent;
      cell.classList.toggle("extra", heads[index].classList.contains("extra"));
    });
  }
}
