// A formula inside a line of text that is wider than the text is set smaller, down to three quarters, and if that is not
// enough scrolls inside itself; the page never gets wider than the screen. (CSS alone would do that to every formula, and
// a box that can scroll no longer sits on the line's baseline.)
(function () {
  "use strict";

  function fit() {
    const formulas = [...document.querySelectorAll("article mjx-container:not([display])")];
    formulas.forEach((formula) => {
      formula.classList.remove("wide-formula");
      formula.firstElementChild.style.fontSize = "";
    });
    const shares = formulas.map((formula) => {
      const block = formula.closest("p, li, dd, dt, td, th, figcaption, h1, h2, h3, h4, h5, h6, div");
      return block.clientWidth / formula.getBoundingClientRect().width;
    });
    formulas.forEach((formula, index) => {
      if (!(shares[index] < 1)) return; // it fits, or is hidden
      formula.classList.add("wide-formula");
      formula.firstElementChild.style.fontSize = `${Math.max(75, Math.floor(100 * shares[index]))}%`;
    });
  }

  window.addEventListener("load", () => {
    if (!window.MathJax?.startup?.promise) return; // a page without mathematics
    window.MathJax.startup.promise.then(() => {
      fit();
      window.addEventListener("resize", fit);
    });
  });
})();
