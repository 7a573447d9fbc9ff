// Recomputes the hashes of the links that the page shows, and how they hang together; shows what was hashed.
"use strict";
(() => {
  const links = [...document.querySelectorAll("li[data-hash]")];
  const verdict = document.getElementById("computed");
  if (!verdict || !links.length) return;

  // What would hide is shown by its number: what is read here is what was hashed.
  const visible = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (one) => "\\u{" + one.codePointAt(0).toString(16) + "}");

  function say(link, text, level) {
    const badge = link.querySelector(".badge.computed");
    badge.textContent = text;
    badge.className = "badge computed " + level;
    badge.hidden = false;
  }

  async function digest(bytes) {
    const found = await crypto.subtle.digest("SHA-256", bytes);
    return [...new Uint8Array(found)].map((one) => one.toString(16).padStart(2, "0")).join("");
  }

  async function check(link, older) {
    if (!link.dataset.content) return "too long for this page";
    const bytes = Uint8Array.from(atob(link.dataset.content), (one) => one.charCodeAt(0));
    const text = new TextDecoder().decode(bytes);
    link.querySelector("pre").textContent = visible(text);
    link.querySelector("details").hidden = false;
    if (await digest(bytes) !== link.dataset.hash) return "it no longer says what it said";
    if (JSON.parse(text)[0] !== link.dataset.previous) return "it names another link before it";
    if (older && older.dataset.hash !== link.dataset.previous) return "the link before it is missing";
    if (link.dataset.head && link.dataset.head !== link.dataset.hash) return "its session ends in another head";
    return "";
  }

  async function all() {
    let wrong = 0, skipped = 0;
    for (const [place, link] of links.entries()) {
      const older = links.slice(place + 1).find((one) => one.dataset.session === link.dataset.session);
      const fault = await check(link, older);
      if (!link.dataset.content) skipped += 1; else if (fault) wrong += 1;
      say(link, fault || "recomputed", !link.dataset.content ? "quiet" : fault ? "bad" : "good");
    }
    verdict.textContent = wrong ? wrong + " of " + links.length + " links are not as they were written."
      : links.length - skipped + " of " + links.length + " links were recomputed by this browser, and hang together.";
    verdict.className = "notice " + (wrong ? "bad" : "good");
  }

  if (!globalThis.crypto || !crypto.subtle) {
    verdict.textContent = "This browser recomputes nothing over plain HTTP: the command below does.";
    verdict.className = "notice warn";
  } else {
    all();
  }
})();
