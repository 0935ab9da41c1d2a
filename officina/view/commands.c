#include "view/commands.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const struct command commands[] = {
    {"/help", "", "what Officina is and how it is used"},
    {"/keys", "", "every key"},
    {"/status", "", "versions, coupling, window, sandbox, paths"},
    {"/plan", "", "look and think only"},
    {"/build", "", "work on the files"},
    {"/panel", "[on|off]", "the panel at the right"},
    {"/history", "[word]", "turns of this conversation"},
    {"/resume", "[word|id]", "conversations of this project"},
    {"/new", "", "a new conversation"},
    {"/fork", "", "a copy of this one"},
    {"/title", "text", "name this conversation"},
    {"/export", "file", "write it as Markdown"},
    {"/rewind", "[turn]", "go back before a turn: files and context"},
    {"/redo", "", "take the last rewind back"},
    {"/diff", "[turn|all]", "what a turn changed"},
    {"/couple", "[name]", "couplings"},
    {"/cap", "", "money: caps and what was spent"},
    {"/window", "", "where the context numbers come from"},
    {"/context", "", "what fills the window"},
    {"/drop", "id", "take one item out of the context"},
    {"/offload", "", "replace old bulk by stubs now"},
    {"/distil", "[focus]", "summarize and go on with the summary"},
    {"/recall", "words", "search what was offloaded"},
    {"/remember", "text", "a fact for every conversation of this project"},
    {"/forget", "id", "take a fact back"},
    {"/checkpoint", "[name]", "ask the engine to save this conversation"},
    {"/warm", "", "ask the engine to restore it"},
    {"/rules", "", "permission rules and where each comes from"},
    {"/allow", "rule", "add a rule that allows"},
    {"/deny", "rule", "add a rule that denies"},
    {"/tasks", "", "the model's task list"},
    {"/jobs", "", "background jobs"},
    {"/kill", "n", "end a job"},
    {"/mcp", "", "MCP servers"},
    {"/ext", "", "extensions"},
    {"/skills", "", "skills"},
    {"/trust", "", "what this folder's configuration would do"},
    {"/add-dir", "folder", "one more root"},
    {"/theme", "[dark|light|auto]", "colours"},
    {"/glyphs", "[full|blocks|ascii]", "which characters are drawn"},
    {"/mouse", "[on|off]", "the mouse is Officina's or the terminal's"},
    {"/motion", "[on|off]", "the mark dissolves or vanishes"},
    {"/copy", "[n]", "last answer, or code block n"},
    {"/init", "", "propose an AGENTS.md"},
    {"/report", "", "what a bug report would contain"},
    {"/quit", "", "leave"},
};

const struct command *command_at(size_t i)
{
    return i < sizeof commands / sizeof commands[0] ? &commands[i] : NULL;
}

int command_match(const char *name, const char *word, size_t n)
{
    size_t at = 0;
    if (strncasecmp(name, word, n) == 0)
        return 0;
    for (; *name && at < n; name++)
        at += tolower((unsigned char)*name) == tolower((unsigned char)word[at]);
    return at == n ? 1 : -1;
}
