/* EV_OPENED's text: what the core must know when a conversation opens. A JSON object:
 *   session, root, folder, sandbox, opening (the opening note), tools (the tool block as sent, a JSON text), version,
 *   coupling (an object, see couple/coupling.h), title, mode (0 build, 1 plan), draft, caret
 *   headless, once, emit, answers, read_only, trusted (booleans), max_requests, spent_day, spent_month (micro-euro)
 * EV_STORED's text: {"type":"turn",…}, {"type":"item",…} (core/item_json.h), {"type":"unit",…} (a message of the stored
 * projection: item, count, role, form, bytes, note, steer), {"type":"task"}, {"type":"queue"}, {"type":"session",
 * "spent","offload"}. */
#ifndef OFF_OPEN_H
#define OFF_OPEN_H
#endif
