// One stream of events for the page. Parts that say `data-live` are asked for again when something of theirs happens:
// at most once in a while each, not while the user types in them, and not while the page is out of sight. When the
// connection is lost a bar says so, and says when it is back.
(() => {
  const parts = () => [...document.querySelectorAll("[data-live]")];
  if (parts().length === 0) return;

  const PAUSE = 1500;
  const waiting = new WeakMap();
  const asked = new WeakMap();
  const bar = document.getElementById("connection");
  let lostAt = null;
  let missed = false;

  function typing(part) {
    const active = document.activeElement;
    if (active && part.contains(active) && active.matches("input, textarea, select")) return true;
    // an open question or ticked rows are something one is in the middle of
    return part.querySelector("details.sure[open], input[name='ids']:checked") !== null;
  }

  function refresh(part) {
    if (waiting.has(part)) return;
    const wait = Math.max(0, (asked.get(part) ?? 0) + PAUSE - Date.now());
    waiting.set(part, setTimeout(() => {
      waiting.delete(part);
      if (!part.isConnected) return;
      if (document.hidden) { missed = true; return; }
      if (typing(part)) { setTimeout(() => refresh(part), PAUSE); return; }
      asked.set(part, Date.now());
      htmx.trigger(part, "live");
    }, wait));
  }

  function happened(kind, data) {
    for (const part of parts()) {
      const wanted = part.dataset.live.split(" ");
      const subject = part.dataset.liveSubject;
      if (kind !== "reset") {
        if (!wanted.includes(kind)) continue;
        if (subject && ![data.subject, data.schedule_id, data.run_id].includes(subject)) continue;
      }
      refresh(part);
    }
  }

  function say(text, tone) {
    bar.textContent = text;
    bar.className = `connection ${tone}`;
    bar.hidden = text === "";
  }

  function open() {
    const source = new EventSource("/events");
    for (const kind of ["run", "change", "reset"]) {
      source.addEventListener(kind, (event) => happened(kind, JSON.parse(event.data)));
    }
    source.addEventListener("open", () => {
      if (lostAt === null) return;
      lostAt = null;
      say("Connected again. The page is up to date.", "back");
      happened("reset", {});
      setTimeout(() => { if (lostAt === null) say("", ""); }, 4000);
    });
    source.addEventListener("error", () => {
      if (lostAt === null) {
        lostAt = Date.now();
        setTimeout(showState, 1200);
      }
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 5000);
    });
  }

  function showState() {
    if (lostAt === null) return;
    const since = new Date(lostAt).toLocaleTimeString("en-GB");
    say(`The connection to the service is lost. What you see is as of ${since}; trying again…`, "lost");
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && missed) {
      missed = false;
      happened("reset", {});
    }
  });
  addEventListener("pagehide", () => { lostAt = -1; });
  open();
})();
