// The form of a schedule: which inputs belong to the chosen action, suggestions that can be clicked, names of zones.
document.addEventListener("alpine:init", () => {
  Alpine.data("schedule", () => ({
    kind: "http",
    body: "none",
    auth: "none",
    init() {
      const { kind, body, auth } = this.$el.dataset;
      Object.assign(this, { kind, body, auth });
    },
    get isHttp() { return this.kind === "http"; },
    get isCommand() { return this.kind === "command"; },
    get isMessage() { return this.kind === "message"; },
    get isCallback() { return this.kind === "callback"; },
    get hasBody() { return this.body !== "none"; },
    get isBearer() { return this.auth === "bearer"; },
    get isBasic() { return this.auth === "basic"; },
    get takesPayload() { return this.kind !== "http"; },
    get takesMore() { return this.kind === "http" || this.kind === "command"; },
  }));
});

(() => {
  const form = document.getElementById("editor");
  const when = document.getElementById("when");
  const zone = document.getElementById("timezone");
  if (!form || !when || !zone) return;

  document.addEventListener("click", (event) => {
    const suggestion = event.target.closest?.("[data-suggest]");
    if (!suggestion) return;
    when.value = suggestion.dataset.suggest;
    when.dispatchEvent(new Event("input", { bubbles: true }));
    when.focus();
  });

  const names = Intl.supportedValuesOf ? Intl.supportedValuesOf("timeZone") : [];
  const list = document.getElementById("zones");
  for (const name of ["UTC", ...names]) {
    const option = document.createElement("option");
    option.value = name;
    list.append(option);
  }
  // the time zone of a new schedule defaults to that of the browser
  if (form.dataset.new && zone.value === "") zone.value = window.noonbellTimes?.zone ?? "";
})();
