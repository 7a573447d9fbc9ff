// What htmx has no attribute for: icon and title follow the state, and a session's lines stay in view.
"use strict";
(() => {
  const icon = document.getElementById("icon");
  const icons = (icon && icon.href) || "";

  function follow() {
    const part = document.getElementById("part");
    const shown = part && part.querySelector("[data-icon]");
    if (shown && icon && icons) icon.href = shown.dataset.icon;
    if (shown) document.title = shown.dataset.title;
    for (const log of document.querySelectorAll("[data-follow=yes]")) {
      if (log.dataset.held !== "yes") log.scrollTop = log.scrollHeight;
    }
  }

  document.addEventListener("htmx:after:swap", follow);
  document.addEventListener("scroll", (event) => {
    const log = event.target;
    if (!(log instanceof Element) || !log.matches("[data-follow=yes]")) return;
    log.dataset.held = log.scrollHeight - log.scrollTop - log.clientHeight > 40 ? "yes" : "no";
  }, true);
})();
