"use strict";
// Draws each chart in its place. What a chart shows stands beside it as a sentence and as a table, so nothing else is needed.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const coarse = matchMedia("(pointer: coarse)").matches;
  for (const place of document.querySelectorAll("[data-chart]")) {
    const { data, layout } = charts[place.dataset.chart];
    // On a touch screen a drag scrolls the page; elsewhere it zooms, and a double click goes back.
    Plotly.newPlot(place, data, { ...layout, dragmode: coarse ? false : "zoom" }, { displayModeBar: false, responsive: true });
  }
})();
