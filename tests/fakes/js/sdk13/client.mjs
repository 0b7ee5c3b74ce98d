// A client made with @a2a-js/sdk 1.3, which speaks 1.0 and, being told to, 0.3: `node client.mjs BASE/`.

import { Message, Role, StreamResponse, Task, TaskState } from "@a2a-js/sdk";
import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } from "@a2a-js/sdk/client";
import { run } from "../steps.mjs";

const legacyCompat = { enabled: true };
const factory = new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ legacyCompat })],
    cardResolver: new DefaultAgentCardResolver({ legacyCompat }),
  }),
);

const sdk = {
  ask: (text) => ({
    tenant: "",
    message: Message.fromJSON({ messageId: crypto.randomUUID(), role: Role.ROLE_USER, parts: [{ text }] }),
    configuration: undefined,
    metadata: undefined,
  }),
  byId: (id) => ({ tenant: "", id }),
  sent: (answer) => answer.id,
  taskId: (event) => event.payload.value.id,
  isArtifact: (event) => event.payload.$case === "artifactUpdate",
  isWorking: (event) =>
    event.payload.$case === "statusUpdate" && event.payload.value.status.state === TaskState.TASK_STATE_WORKING,
  plain: (value) => ("payload" in value ? StreamResponse : "status" in value ? Task : Message).toJSON(value),
};

const client = await factory.createFromUrl(process.argv[2]);
const card = await client.getAgentCard();
await run(client, { addresses: card.supportedInterfaces.map((it) => it.url), capabilities: card.capabilities }, sdk);
