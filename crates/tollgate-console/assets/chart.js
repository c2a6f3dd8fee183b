// Draws a table as a chart: <figure data-chart><table>. The table stays, behind the switch. Colours are those of the tokens, read again
// when the theme changes.
const color = (name) => {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
};

function draw(figure) {
  const rows = [...figure.querySelectorAll("tbody tr")];
  const at = rows.map((row) => Date.parse(row.querySelector("time").dateTime) / 1000);
  const values = rows.map((row) => Number(row.querySelector("[data-value]").dataset.value));
  const label = figure.querySelector("thead th:last-child").textContent;
  const place = figure.querySelector("[data-plot]");
  place.replaceChildren();
  const axis = { stroke: color("--text-3"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "11px Geist, system-ui" };
  new window.uPlot({
    width: Math.max(place.clientWidth, 240), height: 160, legend: { show: false }, cursor: { y: false },
    scales: { x: { range: (_, from, to) => [from - 43200, to + 43200] }, y: { range: (_, __, most) => [0, Math.max(most, 1)] } },
    axes: [axis, { ...axis, size: 56 }],
    series: [{}, { label, fill: color("--c1"), paths: window.uPlot.paths.bars({ size: [0.6, 48] }), points: { show: false } }],
  }, [at, values], place);
}

for (const figure of document.querySelectorAll("figure[data-chart]")) {
  figure.querySelector("[data-plot]").hidden = false;
  figure.querySelector("details").open = false;
  draw(figure);
  new ResizeObserver(() => draw(figure)).observe(figure);
  document.documentElement.addEventListener("themechange", () => draw(figure));
}
