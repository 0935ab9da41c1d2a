#include "view/languages.h"

#define C_WORDS                                                                                              \
    " auto break case const continue default do else enum extern for goto if inline register restrict "      \
    "return sizeof "                                                                                         \
    "static struct switch typedef union volatile while _Static_assert _Atomic "
#define C_TYPES                                                                                              \
    " void char short int long float double signed unsigned bool size_t ssize_t off_t int8_t int16_t "       \
    "int32_t int64_t "                                                                                       \
    "uint8_t uint16_t uint32_t uint64_t uintptr_t ptrdiff_t FILE NULL true false "

const struct language languages[] = {
    {.names = {"c", "h", NULL},
     .line = {"//"},
     .block = "/*",
     .block_end = "*/",
     .quotes = "\"'",
     .keywords = C_WORDS,
     .types = C_TYPES,
     .flags = LANG_CALLS | LANG_HASH},
    {.names = {"c++", "cpp", "cc", "cxx", "hpp", "hh", "cu", "cuh", "java", "cs", NULL},
     .line = {"//"},
     .block = "/*",
     .block_end = "*/",
     .quotes = "\"'",
     .keywords = C_WORDS
     " alignas catch class concept const_cast constexpr delete dynamic_cast explicit friend mutable "
     "namespace new noexcept operator override private protected public requires static_cast template "
     "this throw try typename using virtual final import package extends implements ",
     .types =
         C_TYPES " string vector map set pair unique_ptr shared_ptr optional nullptr String boolean null ",
     .flags = LANG_CALLS | LANG_HASH},
    {.names = {"python", "py", "pyi", "python3", "SConstruct", NULL},
     .line = {"#"},
     .quotes = "\"'",
     .keywords = " and as assert async await break class continue def del elif else except finally for from "
                 "global if "
                 "import in is lambda match nonlocal not or pass raise return try while with yield ",
     .types = " None True False self cls int float str bytes bool list dict set tuple object Exception ",
     .flags = LANG_CALLS | LANG_TRIPLE},
    {.names = {"rust", "rs", NULL},
     .line = {"//"},
     .block = "/*",
     .block_end = "*/",
     .quotes = "\"",
     .keywords = " as async await break const continue crate dyn else enum extern fn for if impl in let loop "
                 "match mod "
                 "move mut pub ref return self static struct super trait type unsafe use where while ",
     .types = " bool char f32 f64 i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize str String Vec Option "
              "Result Box "
              "Some None Ok Err Self true false ",
     .flags = LANG_CALLS | LANG_LIFETIME},
    {.names = {"go", "golang", NULL},
     .line = {"//"},
     .block = "/*",
     .block_end = "*/",
     .quotes = "\"'",
     .keywords = " break case chan const continue default defer else fallthrough for func go goto if import "
                 "interface map "
                 "package range return select struct switch type var ",
     .types = " bool byte complex64 complex128 error float32 float64 int int8 int16 int32 int64 rune string "
              "uint uint8 "
              "uint16 uint32 uint64 uintptr any nil true false iota ",
     .flags = LANG_CALLS | LANG_BACKTICK},
    {.names = {"javascript", "js", "jsx", "mjs", "cjs", "typescript", "ts", "tsx", "node", NULL},
     .line = {"//"},
     .block = "/*",
     .block_end = "*/",
     .quotes = "\"'",
     .keywords =
         " async await break case catch class const continue debugger default delete do else export extends "
         "finally for from function if import in instanceof interface let new of return static super switch "
         "this "
         "throw try type typeof var void while with yield enum implements readonly declare namespace ",
     .types = " any boolean number string unknown never object undefined null true false Array Promise Map "
              "Set Object ",
     .flags = LANG_CALLS | LANG_BACKTICK},
    {.names = {"sh", "bash", "shell", "zsh", "console", "shellscript", ".bashrc", ".profile", NULL},
     .line = {"#"},
     .quotes = "\"'",
     .keywords = " if then else elif fi for while until do done case esac in function return local export "
                 "set unset shift "
                 "exit break continue trap readonly eval exec source ",
     .types = " echo printf cd test true false read ",
     .flags = LANG_DOLLAR | LANG_SPACED | LANG_DASH},
    {.names = {"json", "jsonc", "json5", "jsonl", NULL},
     .line = {"//"},
     .quotes = "\"",
     .keywords = " true false null ",
     .flags = LANG_KEYS},
    {.names = {"yaml", "yml", NULL},
     .line = {"#"},
     .quotes = "\"'",
     .keywords = " true false null yes no on off ",
     .flags = LANG_KEYS | LANG_SPACED | LANG_DASH},
    {.names = {"toml", NULL},
     .line = {"#"},
     .quotes = "\"'",
     .keywords = " true false ",
     .flags = LANG_KEYS | LANG_DASH},
    {.names = {"ini", "conf", "cfg", "desktop", "service", "properties", ".gitconfig", NULL},
     .line = {"#", ";"},
     .quotes = "\"",
     .keywords = " true false yes no on off ",
     .flags = LANG_KEYS | LANG_SPACED | LANG_DASH},
    {.names = {"sql", "sqlite", "postgresql", "mysql", NULL},
     .line = {"--"},
     .block = "/*",
     .block_end = "*/",
     .quotes = "'\"",
     .keywords = " select from where and or not insert into values update set delete create table index view "
                 "trigger drop "
                 "alter add column primary key foreign references unique default null is in as on join left "
                 "right inner "
                 "outer group by order having limit offset union all distinct begin commit rollback case "
                 "when then else "
                 "end exists like between with returning cascade virtual using pragma ",
     .types =
         " integer int text blob real varchar char boolean date timestamp numeric count sum min max avg ",
     .flags = LANG_FOLD | LANG_CALLS | LANG_NO_ESCAPE},
    {.names = {"make", "makefile", "GNUmakefile", "mk", "mak", NULL},
     .line = {"#"},
     .quotes = "\"'",
     .keywords = " ifeq ifneq ifdef ifndef else endif include define endef export override vpath ",
     .flags = LANG_DOLLAR | LANG_KEYS | LANG_DASH},
    {.names = {"cmake", "CMakeLists.txt", "meson", "meson.build", "meson_options.txt", NULL},
     .line = {"#"},
     .quotes = "\"'",
     .keywords = " if elseif elif else endif foreach endforeach while endwhile function endfunction macro "
                 "endmacro return "
                 "and or not true false on off ",
     .flags = LANG_CALLS | LANG_DOLLAR | LANG_FOLD},
    {.names = {"diff", "patch", NULL}, .flags = LANG_DIFF},
    {.names = {"markdown", "md", NULL}, .flags = LANG_MARKDOWN},
};

const size_t n_languages = sizeof languages / sizeof languages[0];
