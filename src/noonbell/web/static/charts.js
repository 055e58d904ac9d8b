// Charts of durations and lateness, by uPlot. The words below each heading say the same without them.
(() => {
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const drawn = [];

  function say(ms) {
    if (ms == null) return "–";
    if (ms < 1) return ms ? `${ms.toFixed(1)} ms` : "0 ms";
    if (ms < 1000) return `${Math.round(ms)} ms`;
    if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
    if (ms < 7200000) return `${(ms / 60000).toFixed(1)} min`;
    return `${(ms / 3600000).toFixed(1)} h`;
  }

  const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const day = (at) => new Date(at * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" });

  function draw(box) {
    const points = JSON.parse(box.dataset.points);
    const values = points[box.dataset.chart];
    if (points.at.length < 2) return;
    box.replaceChildren();
    const span = points.at[points.at.length - 1] - points.at[0];
    const good = values.map((value, at) => (points.good[at] ? value : null));
    const bad = values.map((value, at) => (points.good[at] ? null : value));
    const axis = { stroke: style("--muted"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false } };
    const dots = (stroke, size) => ({ stroke, width: 0, paths: () => null, points: { show: true, size, fill: stroke, stroke } });
    const chart = new uPlot({
      width: box.clientWidth,
      height: 188,
      cursor: { y: false },
      scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, 10)] } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map(span > 172800 ? day : clock) }, { ...axis, size: 62, values: (_, ticks) => ticks.map(say) }],
      series: [
        { label: "at", value: (_, at) => (at == null ? "–" : new Date(at * 1000).toLocaleString("en-GB")) },
        { label: "succeeded", value: (_, ms) => say(ms), ...dots(style("--accent"), 5) },
        { label: "not succeeded", value: (_, ms) => say(ms), ...dots(style("--bad"), 7) },
      ],
    }, [points.at, good, bad], box);
    drawn.push([box, chart]);
  }

  // where the year does not fit, its end is what one looks for
  for (const year of document.querySelectorAll(".calendar")) year.parentElement.scrollLeft = year.scrollWidth || 9999;

  const boxes = [...document.querySelectorAll("[data-chart]")];
  boxes.forEach(draw);
  addEventListener("resize", () => {
    for (const [box, chart] of drawn) chart.setSize({ width: box.clientWidth, height: 188 });
  });
  document.addEventListener("noonbell:theme", () => {
    for (const [, chart] of drawn.splice(0)) chart.destroy();
    boxes.forEach(draw);
  });
})();
