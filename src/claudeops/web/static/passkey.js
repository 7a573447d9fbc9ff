// Lets a passkey sign a yes, and adds one: what is signed comes from the server, and goes back there.
"use strict";
(() => {
  const bytes = (text) => Uint8Array.from(
    atob(text.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0));
  const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const keys = (ids) => ids.map((id) => ({ type: "public-key", id: bytes(id) }));

  async function send(path, body) {
    const answer = await fetch(path, {
      method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" },
    });
    const said = await answer.json();
    if (!answer.ok) throw new Error(said.detail);
    return said;
  }

  async function sign(form) {
    const fields = new FormData(form);
    const asked = await send(form.dataset.passkey + "/challenge", { call_hash: fields.get("call_hash") });
    const made = await navigator.credentials.get({ publicKey: {
      challenge: bytes(asked.challenge), rpId: asked.rp_id, allowCredentials: keys(asked.credentials),
      userVerification: "required", timeout: 120000,
    } });
    const passkey = JSON.stringify({ id: made.id, rawId: text(made.rawId), type: made.type, response: {
      clientDataJSON: text(made.response.clientDataJSON),
      authenticatorData: text(made.response.authenticatorData),
      signature: text(made.response.signature),
    } });
    await send(form.dataset.passkey + "/answer", {
      answer: "approve", call_hash: fields.get("call_hash"), unseen: fields.get("unseen") === "true", passkey,
    });
    return "/approvals";
  }

  async function add(form) {
    const asked = await send(form.dataset.passkey + "/challenge", {});
    const made = await navigator.credentials.create({ publicKey: {
      challenge: bytes(asked.challenge), rp: { id: asked.rp_id, name: "claudeops" },
      user: { id: bytes(asked.user_handle), name: asked.user_name, displayName: asked.user_name },
      pubKeyCredParams: asked.algorithms.map((alg) => ({ type: "public-key", alg })),
      excludeCredentials: keys(asked.credentials), attestation: "none",
      authenticatorSelection: { userVerification: "required" }, timeout: 120000,
    } });
    const credential = JSON.stringify({ id: made.id, rawId: text(made.rawId), type: made.type, response: {
      clientDataJSON: text(made.response.clientDataJSON),
      attestationObject: text(made.response.attestationObject),
    } });
    await send(form.dataset.passkey, { name: new FormData(form).get("name"), credential });
    return "/passkeys";
  }

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.dataset.passkey) return;
    event.preventDefault();
    const note = form.querySelector("[role=status]");
    try {
      if (!navigator.credentials) throw new Error("This browser offers passkeys over https alone, or as localhost.");
      location.assign(await (form.dataset.does === "add" ? add : sign)(form));
    } catch (error) {
      note.textContent = error.name === "NotAllowedError" ? "The passkey was not used." : error.message;
    }
  });
})();
