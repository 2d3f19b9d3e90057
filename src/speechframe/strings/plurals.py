"""The plural forms of languages, as in the headers of PO files (the usual table of gettext)."""

from speechframe.spec.locales import get_language, normalise

_SLAVIC = "n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"
_LIKE_ENGLISH = (
    "en de nl sv da no nb nn fo es pt it el bg fi et he iw hu eo ca eu gl af sq az bn gu hi ka kk kn ml "
    "mr mn ne pa ta te ur sw zu xh fy lb ast an kl ky uz tk tt ug ps sd si as or rm fur gsw ia ha so st "
    "yi ku tr"
)
_RULES = (
    (1, "0", "ja ko zh vi th lo km my id ms jv su yo bo dz ig ii sah to wo"),
    (2, "n != 1", _LIKE_ENGLISH),
    (2, "n > 1", "fr pt-BR fa oc br fil tl ln mg am ti wa hy"),
    (2, "n%10!=1 || n%100==11", "is mk"),
    (3, "n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2", "lv"),
    (3, "n==1 ? 0 : n==2 ? 1 : 2", "ga"),
    (3, "n==1 ? 0 : (n==0 || (n%100 > 0 && n%100 < 20)) ? 1 : 2", "ro mo"),
    (3, "n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2", "lt"),
    (3, _SLAVIC, "ru uk be sr hr bs"),
    (3, "n==1 ? 0 : n>=2 && n<=4 ? 1 : 2", "cs sk"),
    (3, _SLAVIC.replace("n%10==1 && n%100!=11", "n==1"), "pl szl csb"),
    (4, "n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3", "sl hsb dsb"),
    (4, "n==1 ? 0 : n==0 || (n%100>1 && n%100<11) ? 1 : n%100>10 && n%100<20 ? 2 : 3", "mt"),
    (4, "n==1 ? 0 : n==2 ? 1 : (n != 8 && n != 11) ? 2 : 3", "cy"),
    (4, "n==1 || n==11 ? 0 : n==2 || n==12 ? 1 : n > 2 && n < 20 ? 2 : 3", "gd"),
    (6, "n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5", "ar"),
)
_RULE_BY_LANGUAGE = {tag: (count, rule) for count, rule, tags in _RULES for tag in tags.split()}


def get_plural_rule(locale: str) -> tuple[int, str]:
    """Return the number of forms of a locale, and the C expression that chooses the form for a number n."""
    found = _RULE_BY_LANGUAGE.get(normalise(locale)) or _RULE_BY_LANGUAGE.get(get_language(locale))
    if found is None:
        advice = "write Plural-Forms into the header of a PO file of this language"
        raise ValueError(f"the plural forms of {locale!r} are not known; {advice}")
    return found
