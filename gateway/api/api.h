/* API: one function for each endpoint. Each answers its request, at once or later. */
#ifndef API_H
#define API_H

#include "../gateway.h"

void api_health(struct gateway *gw, struct http_req *r);
void api_models(struct gateway *gw, struct http_req *r);
void api_model(struct gateway *gw, struct http_req *r, const char *id);
void api_props(struct gateway *gw, struct http_req *r);
void api_props_post(struct gateway *gw, struct http_req *r);
void api_metrics(struct gateway *gw, struct http_req *r);
void api_slots(struct gateway *gw, struct http_req *r);
void api_slot_action(struct gateway *gw, struct http_req *r, const char *id);
void api_chat(struct gateway *gw, struct http_req *r);
void api_chat_count(struct gateway *gw,
                    struct http_req *r); /* how many tokens the prompt of a chat request has */
void api_messages(struct gateway *gw, struct http_req *r);
void api_messages_count(struct gateway *gw, struct http_req *r);
void api_responses(struct gateway *gw, struct http_req *r);
void api_responses_count(struct gateway *gw, struct http_req *r);
void api_text(struct gateway *gw, struct http_req *r);
void api_native(struct gateway *gw, struct http_req *r);
void api_infill(struct gateway *gw, struct http_req *r);
void api_tokenize(struct gateway *gw, struct http_req *r);
void api_detokenize(struct gateway *gw, struct http_req *r);
void api_apply_template(struct gateway *gw, struct http_req *r);
void api_embedding(struct gateway *gw, struct http_req *r);  /* native */
void api_embeddings(struct gateway *gw, struct http_req *r); /* OpenAI */
void api_rerank(struct gateway *gw, struct http_req *r);
void api_lora(struct gateway *gw, struct http_req *r);
void api_unsupported(struct gateway *gw, struct http_req *r);

#endif
