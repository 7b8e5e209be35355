// Moves the precomputed frames of an interactive picture; the markup comes from lib/explorer.py.
(function () {
  "use strict";

  function start(figure) {
    const frames = figure.querySelectorAll(".explorer-frames img");
    const controls = [...figure.querySelectorAll(".explorer-control")];
    const text = figure.querySelector(".explorer-choice");

    function update() {
      let index = 0;
      for (const control of controls) {
        const range = control.querySelector("input[type=range]");
        if (range) {
          const values = JSON.parse(range.dataset.values);
          range.setAttribute("aria-valuetext", values[range.value]);
          control.querySelector("output").textContent = values[range.value];
          index = index * values.length + Number(range.value);
        } else {
          const buttons = [...control.querySelectorAll("input[type=radio]")];
          index = index * buttons.length + buttons.findIndex((button) => button.checked);
        }
      }
      frames.forEach((frame, number) => (frame.hidden = number !== index));
      text.textContent = frames[index].dataset.choice;
    }

    figure.querySelector(".explorer-controls").addEventListener("input", update);
    figure.querySelector(".explorer-controls").hidden = false;
    figure.querySelector(".explorer-fallback").hidden = true;
    update(); // a browser may restore the controls of the last visit
  }

  function startAll() {
    // Pictures of a live kernel have controls of their own and no set of frames.
    document.querySelectorAll("figure.explorer:has(.explorer-frames)").forEach(start);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", startAll);
  else startAll();
})();
