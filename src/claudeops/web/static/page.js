// What htmx has no attribute for: icon and title follow the state, a session's lines stay in view, and a stream that
// could not be opened at first is tried again.
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

  // htmx opens a stream again that it has lost; one that it has never had it forgets. A page may be here before its
  // stream when the daemon dies between the two, and when there is no room for one more stream now.
  let pause = 1000; // milliseconds

  function openLater(live) {
    setTimeout(() => {
      if (live.isConnected) htmx.ajax("GET", live.getAttribute("hx-sse:connect"), { source: live });
    }, pause * (0.7 + 0.6 * Math.random()));
    pause = Math.min(2 * pause, 10000);
  }

  document.addEventListener("htmx:error", (event) => {
    if (event.target.id === "live") openLater(event.target);
  });
  document.addEventListener("htmx:before:response", (event) => {
    const { sourceElement, response } = event.detail.ctx;
    if (sourceElement.id !== "live" || response.status < 400) return;
    event.preventDefault(); // why there is no stream is no line of a log
    if (response.status >= 500) openLater(sourceElement);
  });

  document.addEventListener("htmx:after:swap", follow);
  document.addEventListener("scroll", (event) => {
    const log = event.target;
    if (!(log instanceof Element) || !log.matches("[data-follow=yes]")) return;
    log.dataset.held = log.scrollHeight - log.scrollTop - log.clientHeight > 40 ? "yes" : "no";
  }, true);
})();
