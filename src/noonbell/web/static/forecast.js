// Offers the viewer's own zone, which only the browser knows.
(() => {
  const link = document.querySelector("[data-own-zone]");
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const typed = document.getElementById("zone");
  if (!link || !zone || !typed || typed.value === zone) return;
  link.href = `/forecast?zone=${encodeURIComponent(zone)}`;
  link.textContent = `Your own: ${zone}`;
  link.hidden = false;
})();
