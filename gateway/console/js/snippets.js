// How to call an agent through the gateway, to be copied.

import { agentUrl, hasToken } from "./api.js";

/** What a message looks like in the two versions of the protocol. */
export const SPOKEN = {
  "1.0": {
    send: "SendMessage",
    stream: "SendStreamingMessage",
    message: (text) => ({ role: "ROLE_USER", messageId: crypto.randomUUID?.() ?? String(Date.now()), parts: [{ text }] }),
    headers: { "A2A-Version": "1.0" },
  },
  "0.3": {
    send: "message/send",
    stream: "message/stream",
    message: (text) => ({ kind: "message", role: "user", messageId: crypto.randomUUID?.() ?? String(Date.now()), parts: [{ kind: "text", text }] }),
    headers: {},
  },
};

/** The versions that a served card offers, the newest first. */
export function versionsOf(card) {
  const found = new Set();
  for (const one of card?.supportedInterfaces ?? []) if (String(one?.protocolVersion).startsWith("1")) found.add("1.0");
  if (card?.protocolVersion || card?.url) found.add("0.3");
  for (const one of card?.supportedInterfaces ?? []) if (String(one?.protocolVersion).startsWith("0.3")) found.add("0.3");
  return found.size ? [...found] : ["0.3"];
}

/** A JSON-RPC request. */
export function request(version, { stream = false, text = "hello", id = 1 } = {}) {
  const { send, stream: streaming, message } = SPOKEN[version];
  return { jsonrpc: "2.0", id, method: stream ? streaming : send, params: { message: message(text) } };
}

/** A command line for a shell. */
export function curl(id, version, stream) {
  const body = request(version, { stream });
  body.params.message.messageId = "1";
  const token = hasToken() ? ` \\\n  -H "Authorization: Bearer $TOKEN"` : "";
  const headers = Object.entries(SPOKEN[version].headers).map(([name, value]) => ` \\\n  -H '${name}: ${value}'`).join("");
  return `curl -s${stream ? "N" : ""} ${agentUrl(id)} \\\n  -H 'Content-Type: application/json'${headers}${token} \\\n  -d '${JSON.stringify(body)}'\n`;
}

/** A program with the official SDK 1.x for Python. */
export function python(id) {
  const headers = hasToken() ? `, headers={"Authorization": "Bearer " + os.environ["TOKEN"]}` : "";
  return `# pip install 'a2a-sdk>=1.3,<1.4' httpx
import asyncio${hasToken() ? "\nimport os" : ""}

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers import new_text_message
from a2a.types import Role, SendMessageRequest


async def main() -> None:
    async with httpx.AsyncClient(timeout=300${headers}) as http:
        card = await A2ACardResolver(http, "${agentUrl(id)}").get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        message = new_text_message("hello", role=Role.ROLE_USER)
        async for event in client.send_message(SendMessageRequest(message=message)):
            print(event)


asyncio.run(main())
`;
}

/** A program with the official SDK for JavaScript. */
export function javascript(id) {
  const fetching = hasToken()
    ? `
const fetchImpl = (url, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set("Authorization", \`Bearer \${process.env.TOKEN}\`);
  return fetch(url, { ...init, headers });
};`
    : "";
  const more = hasToken() ? ", fetchImpl" : "";
  return `// npm install @a2a-js/sdk@1
import { Message, Role } from "@a2a-js/sdk";
import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } from "@a2a-js/sdk/client";
${fetching}
const legacyCompat = { enabled: true }; // agents that speak 0.3, too
const factory = new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ legacyCompat${more} })],
    cardResolver: new DefaultAgentCardResolver({ legacyCompat${more} }),
  }),
);
const client = await factory.createFromUrl("${agentUrl(id)}/");
const message = Message.fromJSON({ messageId: crypto.randomUUID(), role: Role.ROLE_USER, parts: [{ text: "hello" }] });
console.log(await client.sendMessage({ tenant: "", message, configuration: undefined, metadata: undefined }));
`;
}
