// Times in the viewer's zone. The server writes UTC and, beside it, the zone of the schedule; this rewrites the first
// from the `datetime` attribute and hides the second where it would say the same.
(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const made = new Map();
  const format = (name, options) => {
    if (!made.has(name)) made.set(name, new Intl.DateTimeFormat("en-GB", options));
    return made.get(name);
  };
  const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };
  const forms = {
    clock: (at) => format("clock", clock).format(at),
    minute: (at) => format("minute", { hour: "2-digit", minute: "2-digit", hour12: false }).format(at),
    short: (at) => format("day", { day: "numeric", month: "short" }).format(at) + " " + forms.clock(at),
    full: (at) =>
      format("full", { weekday: "short", day: "numeric", month: "short", year: "numeric" }).format(at).replace(",", "") +
      " " + forms.clock(at),
    relative: (at) => relative(at),
  };
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

  function relative(at) {
    const seconds = Math.round((at - Date.now()) / 1000);
    if (seconds === 0) return "now";
    const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size);
    const count = Math.floor(Math.abs(seconds) / size);
    return seconds > 0 ? `in ${count} ${unit}` : `${count} ${unit} ago`;
  }

  function offset(at, name) {
    try {
      return new Intl.DateTimeFormat("en-GB", { timeZone: name, dateStyle: "short", timeStyle: "medium" }).format(at);
    } catch {
      return null;
    }
  }

  function rewrite(root) {
    for (const time of root.querySelectorAll("time[datetime][data-form]")) {
      const at = new Date(time.dateTime);
      const form = forms[time.dataset.form];
      if (!form || Number.isNaN(at.getTime())) continue;
      const text = form(at);
      if (time.textContent !== text) time.textContent = text;
      if (time.dataset.form !== "relative") time.title = `${forms.full(at)} ${zone} · ${time.dateTime}`;
    }
    for (const beside of root.querySelectorAll(".beside[data-at]")) {
      const at = new Date(beside.dataset.at);
      beside.hidden = offset(at, beside.dataset.zone) === offset(at, zone);
    }
    for (const name of root.querySelectorAll("[data-viewer-zone]")) name.textContent = zone;
  }

  function tick() {
    for (const time of document.querySelectorAll('time[data-form="relative"]')) {
      const text = relative(new Date(time.dateTime));
      if (time.textContent !== text) time.textContent = text;
    }
  }

  window.noonbellTimes = { rewrite, zone };
  rewrite(document);
  document.addEventListener("htmx:after:swap", () => rewrite(document));
  setInterval(tick, 1000);
})();
