// Runs before the first paint, so that no page flashes in the wrong theme.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const chosen = localStorage.getItem("noonbell-theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  } catch {
    // no storage: the system's theme it is
  }
})();
