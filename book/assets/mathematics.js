// A formula inside a line of text that is wider than the text scrolls inside itself; the page never gets wider than the
// screen. (CSS alone would do that to every formula, and a box that can scroll no longer sits on the line's baseline.)
(function () {
  "use strict";

  function fit() {
    const formulas = [...document.querySelectorAll("article mjx-container:not([display])")];
    formulas.forEach((formula) => formula.classList.remove("wide-formula"));
    const wide = formulas.filter((formula) => {
      const block = formula.closest("p, li, dd, dt, td, th, figcaption, h1, h2, h3, h4, h5, h6, div");
      return formula.getBoundingClientRect().width > block.clientWidth;
    });
    wide.forEach((formula) => formula.classList.add("wide-formula"));
  }

  window.addEventListener("load", () => {
    if (!window.MathJax?.startup?.promise) return; // a page without mathematics
    window.MathJax.startup.promise.then(() => {
      fit();
      window.addEventListener("resize", fit);
    });
  });
})();
