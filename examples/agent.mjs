// An agent that learns: run it twice, and the second time its answers are right (a simulation). It needs
// "combee up --simulated", "combee sim serve --port 8700", and the packages @combee/client and openai.
import { Combee, wrapOpenAI } from "@combee/client";
import OpenAI from "openai";

const [address, model = "http://127.0.0.1:8700/v1"] = process.argv.slice(2);
const tickets = { // what customers ask, and what turned out to be right in this shop
  "Service desk, order 5201: Ann returns unworn shoes that were delivered 24 days ago. What happens?": "refund",
  "Service desk, order 5202: Ben sends an opened headset of 80.00 back in time. How much is refunded?": "72.00",
  "Service desk, order 5203: Emil says that a lamp arrived broken. What is asked for first?": "a photo",
  "Service desk, order 5204: A refund of 640.00 to Dev is due. Who releases it?": "a team lead",
};
const combee = new Combee(address); // without an address, the "combee up" on this machine

const playbook = await combee.playbook("support/refunds", { fallback: "Be kind and exact." });
console.log("version", playbook.version);

const openai = wrapOpenAI(new OpenAI({ baseURL: model, apiKey: "none" }), {
  combee,
  playbook: "support/refunds",
  onEnd(run) { // say how a run went; in your product a customer, a test or a colleague knows it
    const answer = JSON.parse(run.answer).final_answer;
    const target = tickets[run.task];
    run.outcome({ success: answer === target, answer, target });
  },
});
for (const ticket of Object.keys(tickets)) {
  const messages = [{ role: "user", content: ticket }];
  const reply = await openai.chat.completions.create({ model: "simulated", messages });
  console.log(reply.choices[0].message.content);
}

const counts = await combee.close();
console.log(counts.delivered, "runs delivered");
