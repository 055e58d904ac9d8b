// What one has opened stays open when the part around it is asked for again: a <details> with an id.
(() => {
  let opened = [];
  document.addEventListener("htmx:before:swap", () => {
    opened = [...document.querySelectorAll("details[id][open]")].map((one) => one.id);
  });
  document.addEventListener("htmx:after:swap", () => {
    for (const id of opened) {
      const one = document.getElementById(id);
      if (one) one.open = true;
    }
  });
})();
