// A file that is chosen is read here and put into the text, where it can be looked at before it is sent.
(() => {
  const input = document.querySelector("[data-fill]");
  const text = input && document.getElementById(input.dataset.fill);
  if (!text) return;
  input.closest("[hidden]").hidden = false;
  input.addEventListener("change", async () => {
    const file = input.files[0];
    if (!file) return;
    text.value = await file.text();
    const [, name, ending] = file.name.match(/^(.*)\.(\w+)$/) ?? [null, file.name, ""];
    const format = { toml: "toml", yaml: "yaml", yml: "yaml" }[ending.toLowerCase()];
    if (format) document.getElementById("format").value = format;
    document.getElementById("name").value = name;
    input.value = "";
    text.focus();
  });
})();
