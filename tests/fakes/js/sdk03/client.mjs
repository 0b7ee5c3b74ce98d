// A client made with @a2a-js/sdk 0.3.14, which speaks 0.3: `node client.mjs BASE/`.

import { ClientFactory } from "@a2a-js/sdk/client";
import { run } from "../steps.mjs";

const sdk = {
  ask: (text) => ({
    message: { kind: "message", messageId: crypto.randomUUID(), role: "user", parts: [{ kind: "text", text }] },
  }),
  byId: (id) => ({ id }),
  sent: (answer) => answer.id,
  taskId: (event) => event.id,
  isArtifact: (event) => event.kind === "artifact-update",
  isWorking: (event) => event.kind === "status-update" && event.status.state === "working",
  plain: (value) => value,
};

const client = await new ClientFactory().createFromUrl(process.argv[2]);
const card = await client.getAgentCard();
await run(client, { addresses: [card.url], capabilities: card.capabilities }, sdk);
