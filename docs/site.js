/* SPDX-License-Identifier: Apache-2.0 */

/* Gives names to what the theme leaves without one, and lets a keyboard scroll what is wide. */
(() => {
  let blocks = 0;

  function mend() {
    document.querySelector(".md-search:not([aria-label])")?.setAttribute("aria-label", "Search");
    for (const nav of document.querySelectorAll(".md-code__nav:not([aria-label])")) {
      blocks += 1;
      nav.setAttribute("aria-label", `Code block ${blocks}`);
    }
    const wide = ".md-typeset__scrollwrap, .md-typeset p:has(> img:only-child), .md-typeset pre > code";
    for (const area of document.querySelectorAll(wide)) {
      area.tabIndex = 0;
    }
  }

  // The theme adds some of it after the page was loaded.
  new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
  mend();
})();
