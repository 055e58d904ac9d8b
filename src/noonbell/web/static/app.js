// What every page needs: the token on requests of scripts, the theme, the menu of narrow screens, ticked rows.
(() => {
  const root = document.documentElement;
  const csrf = document.querySelector('meta[name="csrf"]')?.content ?? "";

  document.addEventListener("htmx:config:request", (event) => {
    event.detail.ctx.request.headers["X-CSRF-Token"] = csrf;
  });

  // --- theme ---
  const toggle = document.querySelector(".theme-toggle");
  const dark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const label = () => {
    toggle.querySelector(".theme-label").textContent = dark() ? "Light theme" : "Dark theme";
  };
  if (toggle) {
    toggle.hidden = false;
    label();
    toggle.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try {
        localStorage.setItem("noonbell-theme", root.dataset.theme);
      } catch {
        // it holds for this page alone, then
      }
      label();
      document.dispatchEvent(new CustomEvent("noonbell:theme"));
    });
  }

  // --- menu ---
  const button = document.querySelector(".menu-button");
  const menu = document.getElementById("menu");
  if (button && menu) {
    const open = (yes) => {
      button.setAttribute("aria-expanded", String(yes));
      menu.classList.toggle("open", yes);
    };
    button.addEventListener("click", () => open(button.getAttribute("aria-expanded") !== "true"));
    menu.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        open(false);
        button.focus();
      }
    });
  }

  // --- ticked rows: a form with `data-bulk` shows how many, and can tick all of the page ---
  function count(form) {
    const boxes = [...form.querySelectorAll('input[name="ids"]')];
    const ticked = boxes.filter((box) => box.checked).length;
    const status = form.querySelector("[data-bulk-count]");
    if (status) status.textContent = ticked === 0 ? "None chosen" : `${ticked} chosen`;
    const all = form.querySelector("[data-bulk-all]");
    if (all) {
      all.checked = ticked > 0 && ticked === boxes.length;
      all.indeterminate = ticked > 0 && ticked < boxes.length;
    }
    form.classList.toggle("has-chosen", ticked > 0);
  }
  document.addEventListener("change", (event) => {
    const form = event.target.closest?.("form[data-bulk]");
    if (!form) return;
    if (event.target.matches("[data-bulk-all]")) {
      for (const box of form.querySelectorAll('input[name="ids"]')) box.checked = event.target.checked;
    }
    count(form);
  });
  const recount = () => document.querySelectorAll("form[data-bulk]").forEach(count);
  recount();
  document.addEventListener("htmx:after:swap", recount);

  // --- an open question closes when one clicks elsewhere ---
  document.addEventListener("click", (event) => {
    for (const sure of document.querySelectorAll("details.sure[open]")) {
      if (!sure.contains(event.target)) sure.open = false;
    }
  });

  // --- copy: a button with data-copy copies the text of the element that it names ---
  document.addEventListener("click", async (event) => {
    const copy = event.target.closest?.("[data-copy]");
    const from = copy && document.getElementById(copy.dataset.copy);
    if (!from) return;
    await navigator.clipboard.writeText(from.textContent.trim());
    copy.textContent = "Copied";
  });
})();
